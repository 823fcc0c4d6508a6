// Two sites and the app that replicates between them: what `busway demo` runs on one machine, deployed to Azure.
//
//   az group create --name busway --location westeurope
//   az deployment group create --resource-group busway --template-file infra/main.bicep \
//     --parameters westNamespaceName=NAME eastNamespaceName=NAME
//   func azure functionapp publish $(az deployment group show --resource-group busway --name main \
//     --query properties.outputs.functionAppName.value --output tsv)
//
// With the nightly reconciliation: build its image, then give it to the deployment.
//   az acr build --registry REGISTRY --image busway-reconcile:1 --file jobs/reconcile/Dockerfile .
//   … --parameters reconcileImage=REGISTRY.azurecr.io/busway-reconcile:1 reconcileRegistryName=REGISTRY
//
// Deploy before the first message is sent: infra/modules/site.bicep says why.

import { thresholdsType } from 'modules/alerts.bicep'

targetScope = 'resourceGroup'

@description('Region of the Function app and its storage. Choose the region of the site that must keep working if the other one fails.')
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

@description('Where metrics and spans go; docs/telemetry.md says what they cost. The alerts and the workbook need metrics.')
@allowed(['off', 'azure-monitor'])
param telemetry string = 'azure-monitor'

@description('Whether batches, and messages that their senders trace, are exported as spans too.')
param spans bool = false

@description('Whether to deploy the alerts of modules/alerts.yaml.')
param alerts bool = true

@description('Thresholds instead of those of modules/alerts.yaml, by the name of the alert: { lag: 60 }.')
param alertThresholds thresholdsType = {}

@description('Address of the page with the runbook, which each alert names.')
param runbooks string = 'docs/operations.md'

@description('Whether to deploy the workbook.')
param workbook bool = true

@description('Name of a key vault in this resource group that holds the secrets of connections; empty if no connection names one. The vault must use Azure RBAC.')
param keyVaultName string = ''

@description('Days for which journals are kept.')
@minValue(9)
param journalDays int = 35

@description('Whether the account of the journals has a hierarchical namespace, for a cluster instead of the Container Apps job. It cannot be changed later.')
param journalFolders bool = false

@description('Name of an Event Hubs namespace for the journal, unique in Azure; empty for a journal in blobs. The reconciliation reads blobs only.')
param journalNamespaceName string = ''

@description('Image of the nightly reconciliation, built from jobs/reconcile/Dockerfile; empty for none.')
param reconcileImage string = ''

@description('Name of the container registry in this resource group that has the image; empty if anyone may pull it.')
param reconcileRegistryName string = ''

@description('Whether the app may use all entities of the namespaces, or only those that its tasks name.')
@allowed(['namespace', 'entities'])
param roleScope string = 'namespace'

@description('Whether the app may only add to the journal, not change or delete what is there. Taps that peek need false: they overwrite their position.')
param journalAppendOnly bool = false

@description('Whether namespaces, storage and app can be reached from public networks. Disabled needs private endpoints, and the Premium tier for Service Bus.')
@allowed(['Enabled', 'Disabled'])
param publicNetworkAccess string = 'Enabled'

@description('Resource ids of the action groups that alerts notify; without one, alerts are only shown in the portal.')
param actionGroupIds string[] = []

var journalStorageName = 'journal${uniqueString(resourceGroup().id, functionAppName)}'
var journalAddress = 'https://${journalStorageName}.blob.${environment().suffixes.storage}'
var reconcileJobName = take('reconcile-${uniqueString(resourceGroup().id, functionAppName)}', 32)

module west 'modules/site.bicep' = {
  name: 'west'
  params: {
    name: westNamespaceName
    location: westLocation
    sku: serviceBusSku
    copiesPayments: true
    publicNetworkAccess: publicNetworkAccess
  }
}

module east 'modules/site.bicep' = {
  name: 'east'
  params: {
    name: eastNamespaceName
    location: eastLocation
    sku: serviceBusSku
    copiesPayments: false
    publicNetworkAccess: publicNetworkAccess
  }
}

module app 'modules/function-app.bicep' = {
  name: 'function-app'
  params: {
    name: functionAppName
    location: location
    maximumInstanceCount: maximumInstanceCount
    publicNetworkAccess: publicNetworkAccess
    // NAME__fullyQualifiedNamespace instead of a connection string: use the app's identity, no key.
    settings: {
      BUSWAY_CONFIG: 'config'
      BUSWAY_TELEMETRY: telemetry
      OTEL_TRACES_SAMPLER: spans ? 'parentbased_always_on' : 'always_off'
      BUSWAY_KEY_VAULT: empty(keyVaultName) ? '' : 'https://${keyVaultName}${environment().suffixes.keyvaultDns}'
      WEST__fullyQualifiedNamespace: west.outputs.fullyQualifiedNamespace
      EAST__fullyQualifiedNamespace: east.outputs.fullyQualifiedNamespace
      // Used once the app has a config/journal.yaml (docs/journal.md).
      JOURNAL__blobServiceUri: journalAddress
      // Not the module's output: the module is deployed after the app, because it needs the app's identity.
      JOURNAL_HUB__fullyQualifiedNamespace: empty(journalNamespaceName)
        ? ''
        : '${journalNamespaceName}.servicebus.windows.net'
      BUSWAY_RECONCILIATION: empty(reconcileImage) ? '' : '${journalAddress}/reconciliation'
      BUSWAY_NIGHTLY_JOB: empty(reconcileImage) ? '' : resourceId('Microsoft.App/jobs', reconcileJobName)
    }
  }
}

// Each site is a source and a target: the pair on `events` is all-active, and `jobs` spills over in both directions.
module westRoles 'modules/site-roles.bicep' = {
  name: 'west-roles'
  params: {
    namespaceName: west.outputs.name
    principalId: app.outputs.principalId
    scope: roleScope
    receiveFromQueues: ['jobs']
    receiveFromSubscriptions: [
      { topic: 'events', subscription: 'replication' }
      { topic: 'payments', subscription: 'replication' }
    ]
    sendToQueues: ['jobs', 'jobs-auxiliary', 'jobs-rejected', 'events-rejected', 'payments-rejected']
    sendToTopics: ['events']
  }
}

module eastRoles 'modules/site-roles.bicep' = {
  name: 'east-roles'
  params: {
    namespaceName: east.outputs.name
    principalId: app.outputs.principalId
    scope: roleScope
    receiveFromQueues: ['jobs']
    receiveFromSubscriptions: [{ topic: 'events', subscription: 'replication' }]
    sendToQueues: ['jobs', 'jobs-auxiliary', 'jobs-rejected', 'events-rejected']
    sendToTopics: ['events', 'payments']
  }
}

module vaultRole 'modules/vault-role.bicep' = if (!empty(keyVaultName)) {
  name: 'vault-role'
  params: {
    vaultName: keyVaultName
    principalId: app.outputs.principalId
  }
}

module journalStorage 'modules/journal-storage.bicep' = {
  name: 'journal-storage'
  params: {
    name: journalStorageName
    location: location
    journalDays: journalDays
    hierarchicalNamespace: journalFolders
    appendOnly: journalAppendOnly
    publicNetworkAccess: publicNetworkAccess
    appPrincipalId: app.outputs.principalId
  }
}

module journalHub 'modules/journal-hub.bicep' = if (!empty(journalNamespaceName)) {
  name: 'journal-hub'
  params: {
    name: journalNamespaceName
    location: location
    storageName: journalStorage.outputs.name
    appPrincipalId: app.outputs.principalId
  }
}

module reconcileJob 'modules/reconcile-job.bicep' = if (!empty(reconcileImage)) {
  name: 'reconcile-job'
  params: {
    name: reconcileJobName
    location: location
    image: reconcileImage
    registryName: reconcileRegistryName
    storageName: journalStorage.outputs.name
    workspaceId: app.outputs.workspaceId
    appPrincipalId: app.outputs.principalId
  }
}

module alertRules 'modules/alerts.bicep' = if (alerts) {
  name: 'alerts'
  params: {
    name: functionAppName
    location: location
    workspaceId: app.outputs.workspaceId
    actionGroupIds: actionGroupIds
    hasMetrics: telemetry == 'azure-monitor'
    hasReconciliation: !empty(reconcileImage)
    thresholds: alertThresholds
    runbooks: runbooks
  }
}

module charts 'modules/workbook.bicep' = if (workbook && telemetry == 'azure-monitor') {
  name: 'workbook'
  params: {
    name: functionAppName
    location: location
    workspaceId: app.outputs.workspaceId
  }
}

output functionAppName string = app.outputs.name
output westNamespace string = west.outputs.fullyQualifiedNamespace
output eastNamespace string = east.outputs.fullyQualifiedNamespace
