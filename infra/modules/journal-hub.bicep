// An event hub for the journal instead of blobs (docs/journal.md). Capture writes its events to the container
// `journal-capture`, from which the reconciliation reads them.

@description('Name of the Event Hubs namespace, unique in Azure.')
@minLength(6)
@maxLength(50)
param name string

@description('Region of the namespace.')
param location string

@description('Name of the storage account that Capture writes to.')
param storageName string

@description('Object id of the identity that sends: the Function app.')
param appPrincipalId string

var hubName = 'journal'
var eventHubsDataSender = '2b629674-e913-4c01-ae53-ef4638d8f975'
var storageBlobDataContributor = 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'

resource storage 'Microsoft.Storage/storageAccounts@2023-05-01' existing = {
  name: storageName

  resource blobs 'blobServices' existing = {
    name: 'default'
  }
}

resource captured 'Microsoft.Storage/storageAccounts/blobServices/containers@2023-05-01' = {
  parent: storage::blobs
  name: 'journal-capture'
}

resource namespace 'Microsoft.EventHub/namespaces@2024-01-01' = {
  name: name
  location: location
  sku: {
    name: 'Standard'
    tier: 'Standard'
    capacity: 1
  }
  identity: {
    type: 'SystemAssigned'
  }
  properties: {
    minimumTlsVersion: '1.2'
    disableLocalAuth: true
    isAutoInflateEnabled: true
    maximumThroughputUnits: 10
  }
}

resource captures 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: captured
  name: guid(captured.id, namespace.id, storageBlobDataContributor)
  properties: {
    principalId: namespace.identity.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', storageBlobDataContributor)
  }
}

resource hub 'Microsoft.EventHub/namespaces/eventhubs@2024-01-01' = {
  parent: namespace
  name: hubName
  properties: {
    partitionCount: 4
    messageRetentionInDays: 7
    captureDescription: {
      enabled: true
      encoding: 'Avro'
      intervalInSeconds: 300
      sizeLimitInBytes: 314572800
      skipEmptyArchives: true
      destination: {
        name: 'EventHubArchive.AzureBlockBlob'
        identity: {
          type: 'SystemAssigned'
        }
        properties: {
          storageAccountResourceId: storage.id
          blobContainer: captured.name
          archiveNameFormat: '{Namespace}/{EventHub}/{PartitionId}/{Year}/{Month}/{Day}/{Hour}/{Minute}/{Second}'
        }
      }
    }
  }
  dependsOn: [
    captures
  ]
}

resource sends 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: namespace
  name: guid(namespace.id, appPrincipalId, eventHubsDataSender)
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', eventHubsDataSender)
  }
}

output fullyQualifiedNamespace string = replace(
  replace(namespace.properties.serviceBusEndpoint, 'https://', ''),
  ':443/',
  ''
)
