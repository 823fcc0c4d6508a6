// The roles of the app's identity in one Event Hubs namespace, as those in service-bus-roles.bicep.

import { subscriptionName } from 'types.bicep'

@description('Name of the namespace.')
param namespaceName string

@description('Object id of the identity of the app.')
param principalId string

@description('Whether the roles apply to the namespace or to the hubs below.')
@allowed(['namespace', 'entities'])
param scope string

@description('Hubs that tasks take from.')
param receivesFrom { queues: string[], subscriptions: subscriptionName[], hubs: string[] }

@description('Hubs that tasks send to, rejects and the journal included.')
param sendsTo { queues: string[], topics: string[], hubs: string[] }

@description('Object id of an operator, who may send and receive everywhere; empty for none.')
param operatorPrincipalId string

@description('Whether the operator is a person, a group or an application.')
param operatorPrincipalType string

var dataOwner = 'f526a384-b230-433a-b45c-95f59c4a2dec'
var dataReceiver = 'a638d3c7-ab3a-418d-83e6-5f17a39d4fde'
var dataSender = '2b629674-e913-4c01-ae53-ef4638d8f975'
var perEntity = scope == 'entities'
var sourceHubs = perEntity ? receivesFrom.hubs : []
var targetHubs = perEntity ? sendsTo.hubs : []
var rolesInNamespace = perEntity
  ? []
  : concat(empty(receivesFrom.hubs) ? [] : [dataReceiver], empty(sendsTo.hubs) ? [] : [dataSender])

resource namespace 'Microsoft.EventHub/namespaces@2024-01-01' existing = {
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

resource sources 'Microsoft.EventHub/namespaces/eventhubs@2024-01-01' existing = [
  for name in sourceHubs: {
    parent: namespace
    name: name
  }
]

resource receives 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (name, index) in sourceHubs: {
    scope: sources[index]
    name: guid(namespace.id, name, principalId, dataReceiver)
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataReceiver)
    }
  }
]

resource targets 'Microsoft.EventHub/namespaces/eventhubs@2024-01-01' existing = [
  for name in targetHubs: {
    parent: namespace
    name: name
  }
]

resource sends 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (name, index) in targetHubs: {
    scope: targets[index]
    name: guid(namespace.id, name, principalId, dataSender)
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataSender)
    }
  }
]
