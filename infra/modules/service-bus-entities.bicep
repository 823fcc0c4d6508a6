// Queues, topics, subscriptions and rules of one Service Bus namespace, as `busway plan --bicep` and `busway package` list
// them.

import { namedEntity, subscriptionEntity } from 'types.bicep'

@description('Name of the namespace.')
param namespaceName string

@description('Queues with their properties.')
param queues namedEntity[]

@description('Topics with their properties.')
param topics namedEntity[]

@description('Subscriptions with their properties, each with its only rule or none.')
param subscriptions subscriptionEntity[]

var withRules = filter(subscriptions, each => each.?rule != null)
// An entity must exist before another one forwards to it.
var forwarding = filter(
  queues,
  each => contains(each.properties, 'forwardTo') || contains(each.properties, 'forwardDeadLetteredMessagesTo')
)
var others = filter(
  queues,
  each => !(contains(each.properties, 'forwardTo') || contains(each.properties, 'forwardDeadLetteredMessagesTo'))
)

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' existing = {
  name: namespaceName
}

resource queue 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' = [
  for each in others: {
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

// In the order of the list: one that forwards to another of them comes after it.
@batchSize(1)
resource forwardingQueue 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' = [
  for each in forwarding: {
    parent: namespace
    name: each.name
    properties: each.properties
    dependsOn: [queue, topic]
  }
]

// One after the other: two changes below one topic at a time are refused (409).
@batchSize(1)
resource subscription 'Microsoft.ServiceBus/namespaces/topics/subscriptions@2024-01-01' = [
  for each in subscriptions: {
    name: '${namespaceName}/${each.topic}/${each.name}'
    properties: each.properties
    dependsOn: [queue, topic, forwardingQueue]
  }
]

// The first rule takes the place of $Default.
@batchSize(1)
resource rule 'Microsoft.ServiceBus/namespaces/topics/subscriptions/rules@2024-01-01' = [
  for each in withRules: {
    name: '${namespaceName}/${each.topic}/${each.name}/${each.rule!.name}'
    properties: each.rule!.properties
    dependsOn: [subscription]
  }
]
