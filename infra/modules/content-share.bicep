// The file share with the content of an app on the Premium plan. Azure Files takes no identities, so this account has keys;
// nothing else is stored in it.

@description('Name of the storage account.')
@minLength(3)
@maxLength(24)
param name string

@description('Region of the storage account.')
param location string

@description('Name of the share.')
param share string

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
    name: 'Standard_LRS'
  }
  properties: {
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    allowBlobPublicAccess: false
    publicNetworkAccess: publicNetworkAccess
  }

  resource files 'fileServices' = {
    name: 'default'

    resource content 'shares' = {
      name: share
    }
  }
}

output name string = storage.name
output id string = storage.id
