// The virtual network of a private deployment: a subnet each for the app, the private endpoints and the nightly job, a way out
// for app and job, and the private DNS zones in which the services are found.

import { networkType } from 'types.bicep'

@description('Name of the network.')
param name string

@description('Region of the network: that of the app.')
param location string

@description('Addresses of the network, at least a /22.')
param addressSpace string

@description('Service to which the subnet of the app is delegated: Microsoft.App/environments for Flex Consumption, Microsoft.Web/serverFarms for Premium.')
param appDelegation string

@description('Domain of the namespaces.')
param serviceBusDomain string

@description('Tags of all resources here.')
param tags object

// The zones of the public cloud; those of storage depend on the cloud.
var zoneNames = {
  namespace: 'privatelink.${serviceBusDomain}'
  blob: 'privatelink.blob.${environment().suffixes.storage}'
  file: 'privatelink.file.${environment().suffixes.storage}'
  vault: 'privatelink.vaultcore.azure.net'
  sites: 'privatelink.azurewebsites.net'
}
var zones = items(zoneNames)

// Tokens of Entra ID, Resource Manager and Azure Monitor have no private endpoints here, and new networks no way out of their own.
resource address 'Microsoft.Network/publicIPAddresses@2024-05-01' = {
  name: '${name}-out'
  location: location
  tags: tags
  sku: {
    name: 'Standard'
  }
  properties: {
    publicIPAllocationMethod: 'Static'
  }
}

resource gateway 'Microsoft.Network/natGateways@2024-05-01' = {
  name: '${name}-out'
  location: location
  tags: tags
  sku: {
    name: 'Standard'
  }
  properties: {
    publicIpAddresses: [
      {
        id: address.id
      }
    ]
  }
}

resource network 'Microsoft.Network/virtualNetworks@2024-05-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    addressSpace: {
      addressPrefixes: [addressSpace]
    }
    subnets: [
      {
        name: 'app'
        properties: {
          addressPrefix: cidrSubnet(addressSpace, 24, 0)
          natGateway: {
            id: gateway.id
          }
          delegations: [
            {
              name: 'app'
              properties: {
                serviceName: appDelegation
              }
            }
          ]
        }
      }
      {
        name: 'endpoints'
        properties: {
          addressPrefix: cidrSubnet(addressSpace, 24, 1)
        }
      }
      {
        name: 'nightly'
        properties: {
          addressPrefix: cidrSubnet(addressSpace, 24, 2)
          natGateway: {
            id: gateway.id
          }
          delegations: [
            {
              name: 'nightly'
              properties: {
                serviceName: 'Microsoft.App/environments'
              }
            }
          ]
        }
      }
    ]
  }
}

resource zone 'Microsoft.Network/privateDnsZones@2024-06-01' = [
  for each in zones: {
    name: each.value
    location: 'global'
    tags: tags
  }
]

resource link 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2024-06-01' = [
  for (each, index) in zones: {
    parent: zone[index]
    name: name
    location: 'global'
    tags: tags
    properties: {
      registrationEnabled: false
      virtualNetwork: {
        id: network.id
      }
    }
  }
]

output network networkType = {
  appSubnetId: resourceId('Microsoft.Network/virtualNetworks/subnets', name, 'app')
  endpointSubnetId: resourceId('Microsoft.Network/virtualNetworks/subnets', name, 'endpoints')
  nightlySubnetId: resourceId('Microsoft.Network/virtualNetworks/subnets', name, 'nightly')
  zoneIds: toObject(zones, each => each.key, each => resourceId('Microsoft.Network/privateDnsZones', each.value))
}
