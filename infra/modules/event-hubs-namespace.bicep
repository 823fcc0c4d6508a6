// An Event Hubs namespace. Its hubs are in event-hubs-entities.bicep.

import { secondType } from 'types.bicep'

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

@description('Throughput units to which the Standard tier may raise the capacity by itself.')
param maximumCapacity int

@description('Whether connection strings with keys may be used, beside identities.')
param allowKeys bool

@description('A second namespace, to which the entities are copied and to which the name of the pair can be switched; none without a pair.')
param second secondType?

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
      disableLocalAuth: !allowKeys
      publicNetworkAccess: publicNetworkAccess
    },
    sku == 'Standard' ? { isAutoInflateEnabled: true, maximumThroughputUnits: max(maximumCapacity, capacity) } : {}
  )
}

resource partner 'Microsoft.EventHub/namespaces@2024-01-01' = if (second != null) {
  name: second.?name ?? 'none'
  location: second.?region ?? location
  tags: tags
  sku: { name: sku, tier: sku, capacity: capacity }
  properties: union(
    {
      minimumTlsVersion: '1.2'
      disableLocalAuth: !allowKeys
      publicNetworkAccess: publicNetworkAccess
    },
    sku == 'Standard' ? { isAutoInflateEnabled: true, maximumThroughputUnits: max(maximumCapacity, capacity) } : {}
  )
}

// Applications use the name of the pair; a failover, which a person starts, gives it to the second namespace.
resource pair 'Microsoft.EventHub/namespaces/disasterRecoveryConfigs@2024-01-01' = if (second != null) {
  parent: namespace
  name: second.?pair ?? 'none'
  properties: {
    partnerNamespace: partner.id
  }
}

module captures 'storage-role.bicep' = if (!empty(captureStorageName)) {
  name: 'capture-role-${uniqueString(name)}'
  params: {
    storageName: captureStorageName
    container: 'journal-capture'
    principalId: namespace.identity.principalId
    role: storageBlobDataContributor
  }
}
