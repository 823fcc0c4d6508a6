// Two sites and the app that carries messages between them: what `busway demo` runs on one machine, in Azure.
//
//   az group create --name busway --location westeurope
//   az deployment group create --resource-group busway --template-file infra/main.bicep \
//     --parameters westNamespaceName=NAME eastNamespaceName=NAME
//   func azure functionapp publish $(az deployment group show --resource-group busway --name main \
//     --query properties.outputs.functionAppName.value --output tsv)
//
// Deploy before the first message is sent: infra/modules/site.bicep says why.

targetScope = 'resourceGroup'

@description('Region of the Function app and its storage. Best the region of the site that must be copied when the other fails.')
param location string = resourceGroup().location

@description('Name of the west namespace, unique in Azure.')
@minLength(6)
@maxLength(50)
param westNamespaceName string

@description('Region of the west namespace.')
param westLocation string = location

@description('Name of the east namespace, unique in Azure.')
@minLength(6)
@maxLength(50)
param eastNamespaceName string

@description('Region of the east namespace.')
param eastLocation string = location

@description('Service Bus tier of both namespaces; Basic has neither topics nor sessions.')
@allowed(['Standard', 'Premium'])
param serviceBusSku string = 'Standard'

@description('Name of the Function app, unique in Azure.')
@minLength(2)
@maxLength(60)
param functionAppName string = 'busway-${uniqueString(resourceGroup().id)}'

@description('The most instances that one function may scale out to.')
@minValue(40)
@maxValue(1000)
param maximumInstanceCount int = 40

@description('Where metrics and spans go; docs/telemetry.md says what they cost.')
@allowed(['off', 'azure-monitor'])
param telemetry string = 'off'

@description('Name of a key vault in this resource group that holds the secrets of connections; empty if no connection names one. The vault must use Azure RBAC.')
param keyVaultName string = ''

module west 'modules/site.bicep' = {
  name: 'west'
  params: {
    name: westNamespaceName
    location: westLocation
    sku: serviceBusSku
    copiesPayments: true
  }
}

module east 'modules/site.bicep' = {
  name: 'east'
  params: {
    name: eastNamespaceName
    location: eastLocation
    sku: serviceBusSku
    copiesPayments: false
  }
}

module app 'modules/function-app.bicep' = {
  name: 'function-app'
  params: {
    name: functionAppName
    location: location
    maximumInstanceCount: maximumInstanceCount
    // NAME__fullyQualifiedNamespace in place of a connection string means: no key, use the app's identity.
    settings: {
      BUSWAY_CONFIG: 'config'
      BUSWAY_TELEMETRY: telemetry
      BUSWAY_KEY_VAULT: empty(keyVaultName) ? '' : 'https://${keyVaultName}${environment().suffixes.keyvaultDns}'
      WEST__fullyQualifiedNamespace: west.outputs.fullyQualifiedNamespace
      EAST__fullyQualifiedNamespace: east.outputs.fullyQualifiedNamespace
    }
  }
}

// Each site is a source and a target: the pair on `events` is all-active, and `jobs` spills over in both directions.
module westRoles 'modules/site-roles.bicep' = {
  name: 'west-roles'
  params: {
    namespaceName: west.outputs.name
    principalId: app.outputs.principalId
  }
}

module eastRoles 'modules/site-roles.bicep' = {
  name: 'east-roles'
  params: {
    namespaceName: east.outputs.name
    principalId: app.outputs.principalId
  }
}

module vaultRole 'modules/vault-role.bicep' = if (!empty(keyVaultName)) {
  name: 'vault-role'
  params: {
    vaultName: keyVaultName
    principalId: app.outputs.principalId
  }
}

output functionAppName string = app.outputs.name
output westNamespace string = west.outputs.fullyQualifiedNamespace
output eastNamespace string = east.outputs.fullyQualifiedNamespace
