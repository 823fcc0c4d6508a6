// What the tasks of a project need on Azure: their namespaces and entities, the Function app with its roles, the journal, the
// nightly reconciliation, alerts and a workbook. docs/azure.md is the tutorial.
//
// `busway package` copies this folder to build/infra, with tasks.json: what the tasks need. The project's own
// infra/main.bicepparam has the parameters.
//   busway package
//   az group create --name GROUP --location westeurope
//   az deployment group create --resource-group GROUP --name busway --parameters infra/main.bicepparam
//   cd build/app && func azure functionapp publish $(az deployment group show --resource-group GROUP --name busway \
//     --query properties.outputs.functionAppName.value --output tsv) --python
//
// Deploy before the first message is sent, or with deployEntities=false and `busway apply`: Resource Manager removes $Default
// from a new subscription when it creates the first other rule, and messages that are sent before that pass $Default.

import { thresholdsType } from 'modules/alerts.bicep'
import { namespaceType, networkType, tasksType } from 'modules/types.bicep'

targetScope = 'resourceGroup'

@description('What the tasks need: tasks.json, which `busway package` writes.')
param tasks tasksType

@description('Region of the Function app and its storage. Choose the region of the site that must keep working if the other one fails.')
param location string = resourceGroup().location

@description('Where each namespace is, by the name of its connection; what is left out is chosen. { east: { location: \'northeurope\' } }')
param namespaces { *: namespaceType } = {}

@description('Tier of Service Bus namespaces without a tier of their own. Private networking needs Premium.')
@allowed(['Standard', 'Premium'])
param serviceBusSku string = 'Standard'

@description('Tier of Event Hubs namespaces without a tier of their own.')
@allowed(['Standard', 'Premium'])
param eventHubsSku string = 'Standard'

@description('Whether to deploy the entities of the tasks and of topology.yaml; false if `busway apply` creates them.')
param deployEntities bool = true

@description('Domain of the namespaces in the cloud in use.')
param serviceBusDomain string = 'servicebus.windows.net'

@description('Name of the Function app, unique in Azure.')
@minLength(2)
@maxLength(60)
param functionAppName string = 'busway-${uniqueString(resourceGroup().id)}'

@description('The plan of the app.')
@allowed(['flex-consumption', 'premium'])
param plan string = 'flex-consumption'

@description('Memory of an instance on Flex Consumption, in MB.')
@allowed([512, 2048, 4096])
param instanceMemory int = 2048

@description('The most instances of the app; on Flex Consumption the sum over all functions, lanes and timers too. Some regions refuse less than 40.')
@minValue(1)
@maxValue(1000)
param maximumInstances int = 40

@description('What a publish or a changed setting does on Flex Consumption: Recreate ends running batches at once, RollingUpdate (preview) lets them end.')
@allowed(['Recreate', 'RollingUpdate'])
param siteUpdateStrategy string = 'Recreate'

@description('Instances on Flex Consumption that are always ready, for each function of a task: { \'orders-west-to-east\': 1 }')
param alwaysReady { *: int } = {}

@description('Size of the instances on Premium.')
@allowed(['EP1', 'EP2', 'EP3'])
param premiumSku string = 'EP1'

@description('Instances on Premium that always run.')
@minValue(1)
@maxValue(100)
param premiumInstances int = 1

@description('Resource id of a Premium plan that exists, which the app joins instead of a new one; with plan = \'premium\'.')
param planId string = ''

@description('Whether the plan and, with privateNetworking, the environment of the jobs are spread over availability zones. Premium needs two instances, Flex Consumption two for each alwaysReady.')
param zoneRedundant bool = false

@description('App settings of yours, which replace those of the template: a connection string as a reference to a key vault, for example. Put no secrets here.')
param appSettings object = {}

@description('Whether the app may use all entities of the namespaces, or only those that its tasks name.')
@allowed(['entities', 'namespace'])
param roleScope string = 'entities'

@description('Whether the app is Data Owner of its Service Bus sources: then Azure Functions counts their messages and adds instances for the whole backlog at once. Data Receiver, the default, adds one at a time.')
param scaleByBacklog bool = false

@description('Object id of the person, group or application that operates the deployment (busway apply, smoke, status, repair); empty for none.')
param operatorPrincipalId string = ''

@description('What the operator is.')
@allowed(['User', 'Group', 'ServicePrincipal'])
param operatorPrincipalType string = 'User'

@description('Name of a key vault in this resource group that holds the secrets of connections and editors. Empty: one is created if the tasks name a secret. The vault must use Azure RBAC.')
param keyVaultName string = ''

@description('Whether the app writes its journal.')
param journal bool = true

@description('Days for which journals are kept.')
@minValue(9)
param journalDays int = 35

@description('Days for which the results of the reconciliation are kept.')
@minValue(30)
param resultDays int = 400

@description('Whether the account of the journals has a hierarchical namespace, for a cluster instead of the Container Apps job. It cannot be changed later.')
param journalFolders bool = false

@description('Whether the app may only add to the journal, not change or delete what is there. Taps that peek need false: they overwrite their position.')
param journalAppendOnly bool = false

@description('Resource id of the definition of a role that may read blobs and add to them, for journalAppendOnly. Without one it is created, which takes Owner or User Access Administrator: Contributor may not.')
param journalAppenderRoleId string = ''

@description('Redundancy of the storage accounts of the app and of the journal.')
@allowed(['Standard_LRS', 'Standard_ZRS', 'Standard_GRS', 'Standard_GZRS'])
param storageRedundancy string = 'Standard_ZRS'

@description('Whether a job reconciles the journal every night. It needs a journal in blobs.')
param nightly bool = true

@description('Whether a second job reconciles each closed hour, so that a loss shows two hours after it. It needs nightly.')
param hourly bool = true

@description('Image of the nightly reconciliation, built from jobs/reconcile/Dockerfile. Empty until it is built: then every night reports that it has no result.')
param reconcileImage string = ''

@description('Name of the container registry in this resource group that has the image; empty if anyone may pull it. Without a value a registry is created.')
param registryName string?

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
param runbooks string = 'docs/runbook.md'

@description('Resource ids of the action groups that alerts notify; without one, alerts are only shown in the portal.')
param actionGroupIds string[] = []

@description('Whether to deploy the workbook.')
param workbook bool = true

@description('Whether to deploy a virtual network with private endpoints, and to close the public networks of everything else. The app then reaches namespaces, storage and vault only from there.')
param privateNetworking bool = false

@description('With privateNetworking: a virtual network that exists, instead of a new one with a NAT gateway.')
param existingNetwork networkType?

@description('Addresses of a new virtual network, at least a /22.')
param networkAddresses string = '10.90.0.0/22'

@description('Whether namespaces, storage and vault can be reached from public networks. Disabled without privateNetworking needs private endpoints of yours.')
@allowed(['Enabled', 'Disabled'])
param publicNetworkAccess string = privateNetworking ? 'Disabled' : 'Enabled'

@description('Whether the address of the app, to which it is published, can be reached from public networks.')
@allowed(['Enabled', 'Disabled'])
param appPublicNetworkAccess string = publicNetworkAccess

@description('Tags of all resources.')
param tags object = {}

var unique = uniqueString(resourceGroup().id, functionAppName)

// Where each site is: `new`, `existing`, `elsewhere` if others manage it, or `unused` if no task names it.
var placed = map(
  tasks.sites,
  site =>
    union(site, {
      name: namespaces[?site.alias].?name ?? '${take('busway-${replace(replace(toLower(site.alias), '_', '-'), '.', '-')}', 36)}-${unique}'
      place: contains(appSettings, site.setting) || contains(namespaces[?site.alias] ?? {}, 'host')
        ? 'elsewhere'
        : namespaces[?site.alias].?existing ?? false
            ? 'existing'
            : empty(site.queues) && empty(site.topics) && empty(site.hubs) ? 'unused' : 'new'
      group: namespaces[?site.alias].?resourceGroup ?? resourceGroup().name
      subscription: namespaces[?site.alias].?subscription ?? subscription().subscriptionId
      region: namespaces[?site.alias].?location ?? location
      tier: namespaces[?site.alias].?sku ?? (site.kind == 'service-bus' ? serviceBusSku : eventHubsSku)
      units: namespaces[?site.alias].?capacity ?? 1
      maximumUnits: namespaces[?site.alias].?maximumCapacity ?? 10
      keys: namespaces[?site.alias].?keys ?? false
    })
)
var paired = map(
  placed,
  site =>
    union(
      site,
      site.place != 'new' || namespaces[?site.alias].?pairedRegion == null
        ? {}
        : {
            second: {
              name: '${take(site.name, 43)}-second'
              pair: '${take(site.name, 45)}-pair'
              region: namespaces[site.alias].pairedRegion
            }
          }
    )
)
var ours = filter(paired, site => site.place == 'new' || site.place == 'existing')
var withoutPrivateEndpoints = filter(
  ours,
  site =>
    site.kind == 'service-bus' && site.place == 'new' && site.tier == 'Standard' && publicNetworkAccess == 'Disabled'
)

var withoutPairs = filter(ours, site => site.kind == 'service-bus' && site.tier == 'Standard' && site.?second != null)

var unknownTasks = filter(objectKeys(alwaysReady), task => !contains(tasks.functions, task))
// Functions without an instance of their own starve without an error. Four timers, and those for HTTP together, are Busway's.
var neededInstances = length(flatten(map(items(tasks.functions), each => each.value))) + 5
var alwaysReadyFunctions = flatten(map(
  items(alwaysReady),
  each => map(tasks.functions[?each.key] ?? [], name => { name: 'function:${name}', instanceCount: each.value })
))

var hasJournal = journal && tasks.?journal != null
var journalHub = hasJournal ? tasks.?journal.?hub : null
var journalStorageName = 'journal${unique}'
var journalAddress = 'https://${journalStorageName}.blob.${environment().suffixes.storage}'
var hasNight = nightly && hasJournal && journalHub == null
var nightlyJobName = 'reconcile-${unique}'
var registry = registryName ?? 'busway${unique}'

var appStorageName = 'busway${unique}'
var appStorageAddress = 'https://${appStorageName}.blob.${environment().suffixes.storage}'
var packageContainer = 'app-package'
var contentStorageName = 'content${unique}'

var hasVault = !empty(keyVaultName) || !empty(tasks.secrets)
var vaultName = empty(keyVaultName) ? 'busway-${unique}' : keyVaultName

// NAME__fullyQualifiedNamespace instead of a connection string: the app uses its identity, no key.
var connectionSettings = toObject(
  filter(paired, site => !contains(appSettings, site.setting)),
  site => '${site.setting}__fullyQualifiedNamespace',
  site => namespaces[?site.alias].?host ?? '${site.?second.?pair ?? site.name}.${serviceBusDomain}'
)
var storeSettings = toObject(tasks.stores, setting => '${setting}__blobServiceUri', setting => appStorageAddress)
var journalSettings = hasJournal ? { '${tasks.journal!.setting}__blobServiceUri': journalAddress } : {}

module network 'modules/network.bicep' = if (privateNetworking && existingNetwork == null) {
  name: 'network'
  params: {
    name: '${functionAppName}-network'
    location: location
    addressSpace: networkAddresses
    appDelegation: plan == 'flex-consumption' ? 'Microsoft.App/environments' : 'Microsoft.Web/serverFarms'
    serviceBusDomain: serviceBusDomain
    tags: tags
  }
}

var subnets = privateNetworking
  ? (existingNetwork ?? network!.outputs.network)
  : existingNetwork == null ? null : fail('existingNetwork needs privateNetworking = true.')

module sites 'modules/sites.bicep' = {
  name: 'sites'
  params: {
    sites: !empty(withoutPrivateEndpoints)
      ? fail('Service Bus has private endpoints in the Premium tier only: set serviceBusSku to Premium.')
      : !empty(withoutPairs)
          ? fail('Service Bus has pairs in the Premium tier only: set sku to Premium, or remove pairedRegion.')
          : ours
    deployEntities: deployEntities
    publicNetworkAccess: publicNetworkAccess
    journalHub: journalHub
    journalStorageName: journalStorageName
    unique: unique
    tags: tags
  }
  dependsOn: [journalStorage]
}

module siteRoles 'modules/site-roles.bicep' = {
  name: 'site-roles'
  params: {
    sites: ours
    principalId: app.outputs.principalId
    scope: roleScope
    scaleByBacklog: scaleByBacklog
    operatorPrincipalId: operatorPrincipalId
    operatorPrincipalType: operatorPrincipalType
    unique: unique
  }
  dependsOn: [sites]
}

module appStorage 'modules/app-storage.bicep' = {
  name: 'app-storage'
  params: {
    name: appStorageName
    location: location
    redundancy: storageRedundancy
    packageContainer: packageContainer
    publicNetworkAccess: publicNetworkAccess
    tags: tags
  }
}

module contentStorage 'modules/content-share.bicep' = if (plan == 'premium') {
  name: 'content-storage'
  params: {
    name: contentStorageName
    location: location
    share: 'app'
    publicNetworkAccess: publicNetworkAccess
    tags: tags
  }
}

module monitoring 'modules/telemetry.bicep' = {
  name: 'telemetry'
  params: {
    name: functionAppName
    location: location
    tags: tags
  }
}

module app 'modules/function-app.bicep' = {
  name: 'function-app'
  params: {
    name: functionAppName
    location: location
    plan: plan
    instanceMemory: instanceMemory
    maximumInstances: plan == 'flex-consumption' && neededInstances > maximumInstances
      ? fail('maximumInstances is ${maximumInstances}, expected at least ${neededInstances}: each function and lane needs one')
      : maximumInstances
    siteUpdateStrategy: siteUpdateStrategy
    alwaysReady: empty(unknownTasks)
      ? alwaysReadyFunctions
      : fail('alwaysReady names ${join(unknownTasks, ', ')}, which is not a task')
    planId: empty(planId) || plan == 'premium'
      ? planId
      : fail('planId needs plan = \'premium\': a Flex Consumption plan has one app.')
    zoneRedundant: zoneRedundant && plan == 'premium' && empty(planId) && premiumInstances < 2
      ? fail('zoneRedundant needs premiumInstances of 2 or more.')
      : zoneRedundant
    premiumSku: premiumSku
    premiumInstances: premiumInstances
    storageName: appStorage.outputs.name
    packageContainer: packageContainer
    contentStorageName: plan == 'premium' ? contentStorageName : ''
    contentShare: 'app'
    insightsName: monitoring.outputs.insightsName
    subnetId: subnets.?appSubnetId ?? ''
    publicNetworkAccess: appPublicNetworkAccess
    tags: tags
    settings: union(
      {
        BUSWAY_CONFIG: 'config'
        BUSWAY_TELEMETRY: telemetry
        OTEL_TRACES_SAMPLER: spans ? 'parentbased_always_on' : 'always_off'
        BUSWAY_KEY_VAULT: hasVault ? 'https://${vaultName}${environment().suffixes.keyvaultDns}' : ''
        BUSWAY_JOURNAL: hasJournal ? 'on' : 'off'
        BUSWAY_RECONCILIATION: hasNight ? '${journalAddress}/reconciliation' : ''
        BUSWAY_NIGHTLY_JOB: hasNight ? resourceId('Microsoft.App/jobs', nightlyJobName) : ''
      },
      storeSettings,
      connectionSettings,
      journalSettings,
      appSettings
    )
  }
  dependsOn: [appEndpoints, contentStorage]
}

module vault 'modules/vault.bicep' = if (hasVault && empty(keyVaultName)) {
  name: 'vault'
  params: {
    name: vaultName
    location: location
    publicNetworkAccess: publicNetworkAccess
    operatorPrincipalId: operatorPrincipalId
    operatorPrincipalType: operatorPrincipalType
    tags: tags
  }
}

module vaultRole 'modules/vault-role.bicep' = if (hasVault) {
  name: 'vault-role'
  params: {
    vaultName: vaultName
    principalId: app.outputs.principalId
  }
  dependsOn: [vault]
}

module journalStorage 'modules/journal-storage.bicep' = if (hasJournal) {
  name: 'journal-storage'
  params: {
    name: journalStorageName
    location: location
    redundancy: storageRedundancy
    container: tasks.?journal.?container ?? 'journal'
    isCaptured: journalHub != null
    journalDays: journalDays
    resultDays: resultDays
    hierarchicalNamespace: journalFolders
    appendOnly: journalAppendOnly
    appenderRoleId: journalAppenderRoleId
    publicNetworkAccess: publicNetworkAccess
    appPrincipalId: app.outputs.principalId
    operatorPrincipalId: operatorPrincipalId
    operatorPrincipalType: operatorPrincipalType
    tags: tags
  }
}

module imageRegistry 'modules/registry.bicep' = if (hasNight && registryName == null) {
  name: 'registry'
  params: {
    name: registry
    location: location
    tags: tags
  }
}

module reconcileJob 'modules/reconcile-job.bicep' = if (hasNight) {
  name: 'reconcile-job'
  params: {
    name: nightlyJobName
    location: location
    image: reconcileImage
    registryName: registry
    storageName: journalStorageName
    container: tasks.?journal.?container ?? 'journal'
    subnetId: subnets.?nightlySubnetId ?? ''
    zoneRedundant: zoneRedundant
    // Microsoft's sample has nothing to do every hour.
    hourly: hourly && !empty(reconcileImage)
    workspaceId: monitoring.outputs.workspaceId
    appPrincipalId: app.outputs.principalId
    tags: tags
  }
  dependsOn: [imageRegistry, journalStorage]
}

module alertRules 'modules/alerts.bicep' = if (alerts) {
  name: 'alerts'
  params: {
    name: functionAppName
    location: location
    workspaceId: monitoring.outputs.workspaceId
    actionGroupIds: actionGroupIds
    hasMetrics: telemetry == 'azure-monitor'
    hasReconciliation: hasNight
    hasHours: hasNight && hourly && !empty(reconcileImage)
    thresholds: alertThresholds
    runbooks: runbooks
  }
}

module charts 'modules/workbook.bicep' = if (workbook && telemetry == 'azure-monitor') {
  name: 'workbook'
  params: {
    name: functionAppName
    location: location
    workspaceId: monitoring.outputs.workspaceId
  }
}

// What the app needs at its start has its endpoint before it: the host reads its package from there.
module appEndpoints 'modules/private-endpoints.bicep' = if (privateNetworking) {
  name: 'endpoints-app'
  params: {
    location: location
    subnetId: subnets!.endpointSubnetId
    zoneIds: subnets.?zoneIds ?? {}
    endpoints: concat(
      [{ name: '${functionAppName}-storage', targetId: appStorage.outputs.id, part: 'blob' }],
      plan == 'premium'
        ? [{ name: '${functionAppName}-content', targetId: contentStorage!.outputs.id, part: 'file' }]
        : []
    )
    tags: tags
  }
}

module endpoints 'modules/private-endpoints.bicep' = if (privateNetworking) {
  name: 'endpoints'
  params: {
    location: location
    subnetId: subnets!.endpointSubnetId
    zoneIds: subnets.?zoneIds ?? {}
    endpoints: concat(
      map(ours, site => {
        name: '${functionAppName}-${site.alias}'
        targetId: resourceId(
          site.subscription,
          site.group,
          site.kind == 'service-bus' ? 'Microsoft.ServiceBus/namespaces' : 'Microsoft.EventHub/namespaces',
          site.name
        )
        part: 'namespace'
      }),
      hasJournal
        ? [
            {
              name: '${functionAppName}-journal'
              targetId: resourceId('Microsoft.Storage/storageAccounts', journalStorageName)
              part: 'blob'
            }
          ]
        : [],
      hasVault
        ? [
            {
              name: '${functionAppName}-vault'
              targetId: resourceId('Microsoft.KeyVault/vaults', vaultName)
              part: 'vault'
            }
          ]
        : [],
      [{ name: '${functionAppName}-site', targetId: app.outputs.id, part: 'sites' }]
    )
    tags: tags
  }
  dependsOn: [sites, journalStorage, vault]
}

output functionAppName string = app.outputs.name
output registryName string = hasNight ? registry : ''
output reconcileJobName string = hasNight ? nightlyJobName : ''
output hourlyJobName string = hasNight && hourly && !empty(reconcileImage) ? '${nightlyJobName}-hourly' : ''
output keyVaultName string = hasVault ? vaultName : ''

@description('The app settings with addresses, for commands on another machine: export $(…)')
output settings string = join(
  map(items(union(storeSettings, connectionSettings, journalSettings)), each => '${each.key}=${each.value}'),
  ' '
)
