// The roles of the app's identity in one Service Bus namespace: it may receive and send, not manage. The identity of an
// operator may do everything there.
//
// `entities`: the app may receive only from the subscriptions and queues that tasks take from, and send only to the queues
// and topics that they send to. `namespace`: in the whole namespace. With `scaleByBacklog` it is Data Owner of its sources.

import { subscriptionName } from 'types.bicep'

@description('Name of the namespace.')
param namespaceName string

@description('Object id of the identity of the app.')
param principalId string

@description('Whether the roles apply to the namespace or to the entities below.')
@allowed(['namespace', 'entities'])
param scope string

@description('Queues and subscriptions that tasks take from, also their dead letters.')
param receivesFrom { queues: string[], subscriptions: subscriptionName[], hubs: string[] }

@description('Queues, rejects included, and topics that tasks send to.')
param sendsTo { queues: string[], topics: string[], hubs: string[] }

@description('Whether the app gets Data Owner instead of Data Receiver on its sources, so that Functions may count their messages.')
param scaleByBacklog bool

@description('Object id of an operator, who may also manage; empty for none.')
param operatorPrincipalId string

@description('Whether the operator is a person, a group or an application.')
param operatorPrincipalType string

var dataOwner = '090c5cfd-751d-490a-894a-3ce6f1109419'
var dataReceiver = '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'
var dataSender = '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39'
// Of the roles of Azure only Data Owner may count messages; the SDK asks for *Manage* (azure-functions-host 8892).
var takes = scaleByBacklog ? dataOwner : dataReceiver
var perEntity = scope == 'entities'
var sourceQueues = perEntity ? receivesFrom.queues : []
var subscriptions = perEntity ? receivesFrom.subscriptions : []
var targetQueues = perEntity ? sendsTo.queues : []
var topics = perEntity ? sendsTo.topics : []
var rolesInNamespace = perEntity
  ? []
  : concat(
      empty(receivesFrom.queues) && empty(receivesFrom.subscriptions) ? [] : [takes],
      empty(sendsTo.queues) && empty(sendsTo.topics) ? [] : [dataSender]
    )

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' existing = {
  name: namespaceName
}

resource inNamespace 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for role in rolesInNamespace: {
    scope: namespace
    name: guid(namespace.id, principalId, role)
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role)
    }
  }
]

resource operates 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(operatorPrincipalId)) {
  scope: namespace
  name: guid(namespace.id, operatorPrincipalId, dataOwner)
  properties: {
    principalId: operatorPrincipalId
    principalType: operatorPrincipalType
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataOwner)
  }
}

resource sources 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' existing = [
  for name in sourceQueues: {
    parent: namespace
    name: name
  }
]

resource receivesFromQueues 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (name, index) in sourceQueues: {
    scope: sources[index]
    name: guid(namespace.id, 'queues', name, principalId, takes)
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', takes)
    }
  }
]

resource sourceTopics 'Microsoft.ServiceBus/namespaces/topics@2024-01-01' existing = [
  for each in subscriptions: {
    parent: namespace
    name: each.topic
  }
]

resource sourceSubscriptions 'Microsoft.ServiceBus/namespaces/topics/subscriptions@2024-01-01' existing = [
  for (each, index) in subscriptions: {
    parent: sourceTopics[index]
    name: each.name
  }
]

resource receivesFromSubscriptions 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (each, index) in subscriptions: {
    scope: sourceSubscriptions[index]
    name: guid(namespace.id, each.topic, each.name, principalId, takes)
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', takes)
    }
  }
]

resource targets 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' existing = [
  for name in targetQueues: {
    parent: namespace
    name: name
  }
]

resource sendsToQueues 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (name, index) in targetQueues: {
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
  for name in topics: {
    parent: namespace
    name: name
  }
]

resource sendsToTopics 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (name, index) in topics: {
    scope: targetTopics[index]
    name: guid(namespace.id, 'topics', name, principalId, dataSender)
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataSender)
    }
  }
]
