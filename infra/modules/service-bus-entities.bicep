// Queues, topics, subscriptions and rules of one Service Bus namespace, as `busway plan --bicep` lists them.

@description('Name of the namespace.')
param namespaceName string

@description('Queues with their properties.')
param queues { name: string, properties: object }[]

@description('Topics with their properties.')
param topics { name: string, properties: object }[]

@description('Subscriptions with their properties, each with its only rule or none.')
param subscriptions { topic: string, name: string, properties: object, rule: object? }[]

var withRules = filter(subscriptions, each => each.?rule != null)

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' existing = {
  name: namespaceName
}

resource queue 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' = [
  for each in queues: {
    parent: namespace
    name: each.name
    properties: each.properties
  }
]

resource topic 'Microsoft.ServiceBus/namespaces/topics@2024-01-01' = [
  for each in topics: {
    parent: namespace
    name: each.name
    properties: each.properties
  }
]

resource subscription 'Microsoft.ServiceBus/namespaces/topics/subscriptions@2024-01-01' = [
  for each in subscriptions: {
    name: '${namespaceName}/${each.topic}/${each.name}'
    properties: each.properties
    dependsOn: [queue, topic]
  }
]

// The first rule takes the place of $Default.
resource rule 'Microsoft.ServiceBus/namespaces/topics/subscriptions/rules@2024-01-01' = [
  for each in withRules: {
    name: '${namespaceName}/${each.topic}/${each.name}/${each.rule!.name}'
    properties: each.rule!.properties
    dependsOn: [subscription]
  }
]
