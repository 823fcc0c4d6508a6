// Event hubs and consumer groups of one Event Hubs namespace, as `busway plan --bicep` lists them.

@description('Name of the namespace.')
param namespaceName string

@description('Event hubs with their properties.')
param hubs { name: string, properties: object }[]

@description('Consumer groups by their hub.')
param consumerGroups { hub: string, name: string }[]

resource namespace 'Microsoft.EventHub/namespaces@2024-01-01' existing = {
  name: namespaceName
}

resource eventHub 'Microsoft.EventHub/namespaces/eventhubs@2024-01-01' = [
  for each in hubs: {
    parent: namespace
    name: each.name
    properties: each.properties
  }
]

resource consumerGroup 'Microsoft.EventHub/namespaces/eventhubs/consumergroups@2024-01-01' = [
  for each in consumerGroups: {
    name: '${namespaceName}/${each.hub}/${each.name}'
    dependsOn: [eventHub]
  }
]
