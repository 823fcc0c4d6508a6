// A Service Bus namespace. Its entities are in service-bus-entities.bicep.

import { secondType } from 'types.bicep'

@description('Name of the namespace, unique in Azure.')
@minLength(6)
@maxLength(50)
param name string

@description('Region of the namespace.')
param location string

@description('Tier; Basic has neither topics nor sessions.')
@allowed(['Standard', 'Premium'])
param sku string

@description('Messaging units of the Premium tier.')
param capacity int

@description('Whether connection strings with keys may be used, beside identities.')
param allowKeys bool

@description('A second namespace, to which the entities are copied and to which the name of the pair can be switched; none without a pair.')
param second secondType?

@description('Whether the namespace can be reached from public networks.')
@allowed(['Enabled', 'Disabled'])
param publicNetworkAccess string

@description('Tags of the namespace.')
param tags object

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' = {
  name: name
  location: location
  tags: tags
  sku: union({ name: sku, tier: sku }, sku == 'Premium' ? { capacity: capacity } : {})
  properties: {
    minimumTlsVersion: '1.2'
    disableLocalAuth: !allowKeys
    publicNetworkAccess: publicNetworkAccess
  }
}

resource partner 'Microsoft.ServiceBus/namespaces@2024-01-01' = if (second != null) {
  name: second.?name ?? 'none'
  location: second.?region ?? location
  tags: tags
  sku: { name: 'Premium', tier: 'Premium', capacity: capacity }
  properties: {
    minimumTlsVersion: '1.2'
    disableLocalAuth: !allowKeys
    publicNetworkAccess: publicNetworkAccess
  }
}

// Applications use the name of the pair; a failover, which a person starts, gives it to the second namespace.
resource pair 'Microsoft.ServiceBus/namespaces/disasterRecoveryConfigs@2024-01-01' = if (second != null) {
  parent: namespace
  name: second.?pair ?? 'none'
  properties: {
    partnerNamespace: partner.id
  }
}
