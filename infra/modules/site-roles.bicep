// The roles of the app's identity in one namespace: it may receive and send, not manage.
//
// `namespace`: in the whole namespace. `entities`: it may receive only from the subscriptions and queues that tasks take
// from, and send only to the queues and topics that they send to.

@description('Name of the namespace.')
param namespaceName string

@description('Object id of the identity.')
param principalId string

@description('Whether the roles apply to the namespace or to the entities below.')
@allowed(['namespace', 'entities'])
param scope string

@description('Queues that tasks take from, also their dead letters.')
param receiveFromQueues string[]

@description('Subscriptions that tasks take from.')
param receiveFromSubscriptions { topic: string, subscription: string }[]

@description('Queues that tasks send to, rejects included.')
param sendToQueues string[]

@description('Topics that tasks send to.')
param sendToTopics string[]

var dataReceiver = '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'
var dataSender = '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39'
var perEntity = scope == 'entities'

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' existing = {
  name: namespaceName
}

resource inNamespace 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for role in [dataReceiver, dataSender]: if (!perEntity) {
    scope: namespace
    name: guid(namespace.id, principalId, role)
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role)
    }
  }
]

resource sources 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' existing = [
  for name in receiveFromQueues: {
    parent: namespace
    name: name
  }
]

resource receivesFromQueues 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (name, index) in receiveFromQueues: if (perEntity) {
    scope: sources[index]
    name: guid(namespace.id, 'queues', name, principalId, dataReceiver)
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataReceiver)
    }
  }
]

resource sourceTopics 'Microsoft.ServiceBus/namespaces/topics@2024-01-01' existing = [
  for each in receiveFromSubscriptions: {
    parent: namespace
    name: each.topic
  }
]

resource sourceSubscriptions 'Microsoft.ServiceBus/namespaces/topics/subscriptions@2024-01-01' existing = [
  for (each, index) in receiveFromSubscriptions: {
    parent: sourceTopics[index]
    name: each.subscription
  }
]

resource receivesFromSubscriptions 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (each, index) in receiveFromSubscriptions: if (perEntity) {
    scope: sourceSubscriptions[index]
    name: guid(namespace.id, each.topic, each.subscription, principalId, dataReceiver)
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataReceiver)
    }
  }
]

resource targets 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' existing = [
  for name in sendToQueues: {
    parent: namespace
    name: name
  }
]

resource sendsToQueues 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (name, index) in sendToQueues: if (perEntity) {
    scope: targets[index]
    name: guid(namespace.id, 'queues', name, principalId, dataSender)
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataSender)
    }
  }
]

resource targetTopics 'Microsoft.ServiceBus/namespaces/topics@2024-01-01' existing = [
  for name in sendToTopics: {
    parent: namespace
    name: name
  }
]

resource sendsToTopics 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (name, index) in sendToTopics: if (perEntity) {
    scope: targetTopics[index]
    name: guid(namespace.id, 'topics', name, principalId, dataSender)
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataSender)
    }
  }
]
