// A role of one identity in a storage account, or in one of its containers. A module of its own, because the name of an
// assignment must be known when the deployment of its module begins: named by its principal, the assignment of an app that was
// deleted and deployed again is another one. Resource Manager refuses to change the principal of an assignment.

@description('Name of the storage account.')
param storageName string

@description('Container that the role is about; empty: the account.')
param container string = ''

@description('Object id of the identity.')
param principalId string

@description('Whether it is a person, a group or an application.')
param principalType string = 'ServicePrincipal'

@description('Resource id of the definition of the role, or the id of a role of Azure.')
param role string

var roleId = contains(role, '/') ? role : subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role)

resource storage 'Microsoft.Storage/storageAccounts@2023-05-01' existing = {
  name: storageName

  resource blobs 'blobServices' existing = {
    name: 'default'

    resource one 'containers' existing = {
      name: empty(container) ? 'none' : container
    }
  }
}

resource inAccount 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (empty(container)) {
  scope: storage
  name: guid(storage.id, principalId, role)
  properties: {
    principalId: principalId
    principalType: principalType
    roleDefinitionId: roleId
  }
}

resource inContainer 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(container)) {
  scope: storage::blobs::one
  name: guid(storage::blobs::one.id, principalId, role)
  properties: {
    principalId: principalId
    principalType: principalType
    roleDefinitionId: roleId
  }
}
