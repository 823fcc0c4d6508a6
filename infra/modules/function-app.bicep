// The Function app: on Flex Consumption, which scales each function by itself, or on a Premium plan, whose instances all
// functions share. docs/azure-options.md compares them. The app's own identity has access to storage and telemetry.

@description('Name of the Function app.')
param name string

@description('Region of everything here.')
param location string

@description('The plan of the app.')
@allowed(['flex-consumption', 'premium'])
param plan string

@description('Memory of an instance on Flex Consumption, in MB.')
@allowed([512, 2048, 4096])
param instanceMemory int

@description('The most instances of the app; on Flex Consumption the sum over all functions, lanes and timers too.')
param maximumInstances int

@description('What a publish or a changed setting does on Flex Consumption: Recreate ends running batches at once, RollingUpdate (preview) lets them end.')
@allowed(['Recreate', 'RollingUpdate'])
param siteUpdateStrategy string

@description('Instances on Flex Consumption that are always ready, by the function group (`function:NAME`).')
param alwaysReady { name: string, instanceCount: int }[]

@description('Resource id of a Premium plan that exists, which the app joins; empty: a new plan.')
param planId string

@description('Whether the plan is spread over availability zones.')
param zoneRedundant bool

@description('Size of the instances on Premium.')
@allowed(['EP1', 'EP2', 'EP3'])
param premiumSku string

@description('Instances on Premium that always run.')
param premiumInstances int

@description('Name of the storage account of the host.')
param storageName string

@description('Container of the package on Flex Consumption.')
param packageContainer string

@description('Name of the storage account with the content share on Premium; empty on Flex Consumption.')
param contentStorageName string

@description('Name of the content share.')
param contentShare string

@description('Name of the Application Insights resource.')
param insightsName string

@description('Subnet into which the app sends; empty for none.')
param subnetId string

@description('Whether the address of the app can be reached from public networks.')
@allowed(['Enabled', 'Disabled'])
param publicNetworkAccess string

@description('App settings beside those of the platform.')
param settings object

@description('Tags of all resources here.')
param tags object

var isFlex = plan == 'flex-consumption'
var storageBlobDataOwner = 'b7e6dc6d-f1e8-4753-8033-0f276bb0955b'

resource storage 'Microsoft.Storage/storageAccounts@2023-05-01' existing = {
  name: storageName
}

resource content 'Microsoft.Storage/storageAccounts@2023-05-01' existing = if (!isFlex) {
  name: isFlex ? 'none' : contentStorageName
}

resource insights 'Microsoft.Insights/components@2020-02-02' existing = {
  name: insightsName
}

resource serverFarm 'Microsoft.Web/serverfarms@2024-04-01' = if (empty(planId)) {
  name: '${name}-plan'
  location: location
  tags: tags
  kind: isFlex ? 'functionapp' : 'elastic'
  sku: isFlex
    ? {
        name: 'FC1'
        tier: 'FlexConsumption'
      }
    : {
        name: premiumSku
        tier: 'ElasticPremium'
        capacity: premiumInstances
      }
  properties: union(
    { reserved: true, zoneRedundant: zoneRedundant },
    isFlex ? {} : { maximumElasticWorkerCount: maximumInstances }
  )
}

var flexProperties = {
  functionAppConfig: {
    deployment: {
      storage: {
        type: 'blobContainer'
        value: '${storage.properties.primaryEndpoints.blob}${packageContainer}'
        authentication: {
          type: 'SystemAssignedIdentity'
        }
      }
    }
    runtime: {
      name: 'python'
      version: '3.13'
    }
    scaleAndConcurrency: {
      instanceMemoryMB: instanceMemory
      maximumInstanceCount: maximumInstances
      alwaysReady: alwaysReady
    }
    siteUpdateStrategy: {
      type: siteUpdateStrategy
    }
  }
}

var premiumProperties = {
  siteConfig: {
    linuxFxVersion: 'Python|3.13'
    minimumElasticInstanceCount: premiumInstances
    functionAppScaleLimit: maximumInstances
    // Scaling then sees queues and hubs behind private endpoints too.
    functionsRuntimeScaleMonitoringEnabled: !empty(subnetId)
    ftpsState: 'Disabled'
    minTlsVersion: '1.2'
  }
}

// azd finds the app by its tag.
resource site 'Microsoft.Web/sites@2024-11-01' = {
  name: name
  location: location
  tags: union(tags, { 'azd-service-name': 'app' })
  kind: 'functionapp,linux'
  identity: {
    type: 'SystemAssigned'
  }
  properties: union(
    {
      serverFarmId: empty(planId) ? serverFarm.id : planId
      httpsOnly: true
      publicNetworkAccess: publicNetworkAccess
    },
    isFlex ? flexProperties : premiumProperties,
    empty(subnetId)
      ? {}
      : {
          virtualNetworkSubnetId: subnetId
          // Since this version of the API, for vnetRouteAllEnabled and, on Premium, vnetContentShareEnabled.
          outboundVnetRouting: union({ applicationTraffic: true }, isFlex ? {} : { contentShareTraffic: true })
        }
  )

  // A deployment uses the identity of the person or pipeline that deploys, never a password of the site.
  resource noPasswordsForDeployment 'basicPublishingCredentialsPolicies' = {
    name: 'scm'
    properties: {
      allow: false
    }
  }

  resource noPasswordsForFtp 'basicPublishingCredentialsPolicies' = {
    name: 'ftp'
    properties: {
      allow: false
    }
  }

  // Flex Consumption takes the language from functionAppConfig, and has no share of files.
  resource appSettings 'config' = {
    name: 'appsettings'
    properties: union(
      settings,
      {
        AzureWebJobsStorage__accountName: storage.name
        APPLICATIONINSIGHTS_CONNECTION_STRING: insights.properties.ConnectionString
        APPLICATIONINSIGHTS_AUTHENTICATION_STRING: 'Authorization=AAD'
      },
      isFlex
        ? {}
        : {
            FUNCTIONS_EXTENSION_VERSION: '~4'
            FUNCTIONS_WORKER_RUNTIME: 'python'
            // `func azure functionapp publish` uploads the sources; the packages are installed on Azure.
            SCM_DO_BUILD_DURING_DEPLOYMENT: 'true'
            ENABLE_ORYX_BUILD: 'true'
            WEBSITE_CONTENTAZUREFILECONNECTIONSTRING: 'DefaultEndpointsProtocol=https;AccountName=${contentStorageName};AccountKey=${content!.listKeys().keys[0].value};EndpointSuffix=${environment().suffixes.storage}'
            WEBSITE_CONTENTSHARE: contentShare
            WEBSITE_CONTENTOVERVNET: empty(subnetId) ? '0' : '1'
            // Resource Manager looks at the share from outside the network, and would be refused (403).
            WEBSITE_SKIP_CONTENTSHARE_VALIDATION: empty(subnetId) ? '0' : '1'
            // Scaling then counts messages in a network too, as far as the app's roles let it.
            TARGET_BASED_SCALING_ENABLED: '1'
          }
    )
  }
}

// The host keeps its package, its locks and the checkpoints of Event Hubs in blobs.
module storageRole 'storage-role.bicep' = {
  name: 'host-storage-role'
  params: {
    storageName: storageName
    principalId: site.identity.principalId
    role: storageBlobDataOwner
  }
}

module telemetryRole 'telemetry-role.bicep' = {
  name: 'telemetry-role'
  params: {
    insightsName: insightsName
    principalId: site.identity.principalId
  }
}

output name string = site.name
output id string = site.id
output principalId string = site.identity.principalId
