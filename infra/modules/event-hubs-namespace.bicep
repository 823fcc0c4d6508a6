// An Event Hubs namespace. Its hubs are in event-hubs-entities.bicep.

@description('Name of the namespace, unique in Azure.')
@minLength(6)
@maxLength(50)
param name string

@description('Region of the namespace.')
param location string

@description('Tier; Basic has one consumer group only.')
@allowed(['Standard', 'Premium'])
param sku string

@description('Throughput units of the Standard tier, processing units of Premium.')
param capacity int

@description('Whether the namespace can be reached from public networks.')
@allowed(['Enabled', 'Disabled'])
param publicNetworkAccess string

@description('Storage account to which Capture writes the journal, with the container `journal-capture`; empty without one.')
param captureStorageName string

@description('Tags of the namespace.')
param tags object

var storageBlobDataContributor = 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'

resource namespace 'Microsoft.EventHub/namespaces@2024-01-01' = {
  name: name
  location: location
  tags: tags
  sku: {
    name: sku
    tier: sku
    capacity: capacity
  }
  identity: {
    type: 'SystemAssigned'
  }
  properties: union(
    {
      minimumTlsVersion: '1.2'
      disableLocalAuth: true
      publicNetworkAccess: publicNetworkAccess
    },
    sku == 'Standard' ? { isAutoInflateEnabled: true, maximumThroughputUnits: max(10, capacity) } : {}
  )
}

resource storage 'Microsoft.Storage/storageAccounts@2023-05-01' existing = if (!empty(captureStorageName)) {
  name: empty(captureStorageName) ? 'none' : captureStorageName

  resource blobs 'blobServices' existing = {
    name: 'default'

    resource captured 'containers' existing = {
      name: 'journal-capture'
    }
  }
}

resource captures 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(captureStorageName)) {
  scope: storage::blobs::captured
  name: guid(storage::blobs::captured.id, namespace.id, storageBlobDataContributor)
  properties: {
    principalId: namespace.identity.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', storageBlobDataContributor)
  }
}
