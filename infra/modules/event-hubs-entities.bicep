// Event hubs and consumer groups of one Event Hubs namespace, as `busway plan --bicep` and `busway package` list them.

import { consumerGroup, namedEntity } from 'types.bicep'

@description('Name of the namespace.')
param namespaceName string

@description('Event hubs with their properties.')
param hubs namedEntity[]

@description('Consumer groups by their hub.')
param consumerGroups consumerGroup[]

@description('The hub of the journal, whose events Capture writes to storage; empty for none.')
param capturedHub string = ''

@description('Resource id of the storage account for Capture, which has the container `journal-capture`. The identity of the namespace must be allowed to write there.')
param captureStorageId string = ''

var capture = {
  captureDescription: {
    enabled: true
    encoding: 'Avro'
    intervalInSeconds: 300
    sizeLimitInBytes: 314572800
    // An empty file says that there was nothing to capture; without it a late Capture looks like a quiet hub.
    skipEmptyArchives: false
    destination: {
      name: 'EventHubArchive.AzureBlockBlob'
      identity: {
        type: 'SystemAssigned'
      }
      properties: {
        storageAccountResourceId: captureStorageId
        blobContainer: 'journal-capture'
        archiveNameFormat: '{Namespace}/{EventHub}/{PartitionId}/{Year}/{Month}/{Day}/{Hour}/{Minute}/{Second}'
      }
    }
  }
}

resource namespace 'Microsoft.EventHub/namespaces@2024-01-01' existing = {
  name: namespaceName
}

resource eventHub 'Microsoft.EventHub/namespaces/eventhubs@2024-01-01' = [
  for each in hubs: {
    parent: namespace
    name: each.name
    properties: union(each.properties, !empty(capturedHub) && each.name == capturedHub ? capture : {})
  }
]

// One after the other: two changes below one hub at a time are refused (409).
@batchSize(1)
resource group 'Microsoft.EventHub/namespaces/eventhubs/consumergroups@2024-01-01' = [
  for each in consumerGroups: {
    name: '${namespaceName}/${each.hub}/${each.name}'
    dependsOn: [eventHub]
  }
]
