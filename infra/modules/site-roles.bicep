// The roles of the app's identity in one namespace: it may receive and send, not manage.
// They apply to the whole namespace, because a topic trigger needs its role on the subscription and the scale
// controller reads the same entities. For a narrower scope, assign per subscription, queue and topic.

@description('Name of the namespace.')
param namespaceName string

@description('Object id of the identity.')
param principalId string

var roles = {
  'Azure Service Bus Data Receiver': '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'
  'Azure Service Bus Data Sender': '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39'
}

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' existing = {
  name: namespaceName
}

resource assignment 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for role in items(roles): {
    scope: namespace
    name: guid(namespace.id, principalId, role.value)
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role.value)
    }
  }
]
