// The container registry for the image of the nightly reconciliation.

@description('Name of the registry, unique in Azure.')
@minLength(5)
@maxLength(50)
param name string

@description('Region of the registry.')
param location string

@description('Tags of the registry.')
param tags object

resource registry 'Microsoft.ContainerRegistry/registries@2023-07-01' = {
  name: name
  location: location
  tags: tags
  sku: {
    name: 'Basic'
  }
  properties: {
    adminUserEnabled: false
  }
}
