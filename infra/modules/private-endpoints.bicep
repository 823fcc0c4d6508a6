// Private endpoints, each with its name in a private DNS zone.

@description('Region of the endpoints: that of their network.')
param location string

@description('Subnet of the endpoints.')
param subnetId string

@description('Private DNS zones by the part of a resource; empty if others register the endpoints.')
param zoneIds object

@description('The endpoints: their names, their resources, and the part of the resource: namespace, blob, file, vault or sites.')
param endpoints { name: string, targetId: string, part: string }[]

@description('Tags of the endpoints.')
param tags object

resource endpoint 'Microsoft.Network/privateEndpoints@2024-05-01' = [
  for each in endpoints: {
    name: each.name
    location: location
    tags: tags
    properties: {
      subnet: {
        id: subnetId
      }
      privateLinkServiceConnections: [
        {
          name: each.part
          properties: {
            privateLinkServiceId: each.targetId
            groupIds: [each.part]
          }
        }
      ]
    }
  }
]

resource names 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2024-05-01' = [
  for (each, index) in endpoints: if (!empty(zoneIds)) {
    parent: endpoint[index]
    name: 'default'
    properties: {
      privateDnsZoneConfigs: [
        {
          name: each.part
          properties: {
            privateDnsZoneId: zoneIds[?each.part]
          }
        }
      ]
    }
  }
]
