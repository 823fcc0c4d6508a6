// A Service Bus namespace. Its entities are in service-bus-entities.bicep.

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
    // Identities only. Give applications roles too, or set this to false for those that need keys.
    disableLocalAuth: true
    publicNetworkAccess: publicNetworkAccess
  }
}
