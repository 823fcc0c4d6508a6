// The storage account of the Functions host: the package of the app, locks, checkpoints of event hubs and, unless an app
// setting names another account, what editors store. The app's own identity has access; there are no keys.

@description('Name of the storage account.')
@minLength(3)
@maxLength(24)
param name string

@description('Region of the storage account.')
param location string

@description('Redundancy of the account.')
@allowed(['Standard_LRS', 'Standard_ZRS', 'Standard_GRS', 'Standard_GZRS'])
param redundancy string

@description('Container for the package of the app.')
param packageContainer string

@description('Whether the account can be reached from public networks.')
@allowed(['Enabled', 'Disabled'])
param publicNetworkAccess string

@description('Tags of the account.')
param tags object

resource storage 'Microsoft.Storage/storageAccounts@2023-05-01' = {
  name: name
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: {
    name: redundancy
  }
  properties: {
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    allowBlobPublicAccess: false
    allowSharedKeyAccess: false
    publicNetworkAccess: publicNetworkAccess
  }

  resource blobs 'blobServices' = {
    name: 'default'

    resource packages 'containers' = {
      name: packageContainer
    }
  }
}

output name string = storage.name
output id string = storage.id
