// A key vault for the secrets that connections and editors name. Their values are set by a person, not by a deployment.

@description('Name of the vault, unique in Azure.')
@minLength(3)
@maxLength(24)
param name string

@description('Region of the vault.')
param location string

@description('Whether the vault can be reached from public networks.')
@allowed(['Enabled', 'Disabled'])
param publicNetworkAccess string

@description('Object id of an operator, who sets the values; empty for none.')
param operatorPrincipalId string

@description('Whether the operator is a person, a group or an application.')
param operatorPrincipalType string

@description('Tags of the vault.')
param tags object

var keyVaultSecretsOfficer = 'b86a8fe4-44ce-4948-aee5-eccb2c155cd7'

resource vault 'Microsoft.KeyVault/vaults@2023-07-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    sku: {
      family: 'A'
      name: 'standard'
    }
    tenantId: tenant().tenantId
    enableRbacAuthorization: true
    enableSoftDelete: true
    publicNetworkAccess: publicNetworkAccess
  }
}

resource operates 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(operatorPrincipalId)) {
  scope: vault
  name: guid(vault.id, operatorPrincipalId, keyVaultSecretsOfficer)
  properties: {
    principalId: operatorPrincipalId
    principalType: operatorPrincipalType
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', keyVaultSecretsOfficer)
  }
}
