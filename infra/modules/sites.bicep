// The namespaces of all sites, with their entities.

import { placedSite } from 'types.bicep'

@description('The sites whose entities are deployed.')
param sites placedSite[]

@description('Whether to deploy entities.')
param deployEntities bool

@description('Whether the namespaces can be reached from public networks.')
@allowed(['Enabled', 'Disabled'])
param publicNetworkAccess string

@description('The hub of the journal, which has Capture; none if the journal is not in a hub.')
param journalHub { alias: string, name: string }?

@description('Storage account to which Capture writes.')
param journalStorageName string

@description('End of the names of deployments.')
param unique string

@description('Tags of all resources.')
param tags object

var serviceBusSites = filter(sites, site => site.kind == 'service-bus')
var eventHubsSites = filter(sites, site => site.kind == 'event-hubs')

module serviceBusNamespaces 'service-bus-namespace.bicep' = [
  for site in serviceBusSites: if (site.place == 'new') {
    name: 'namespace-${site.alias}'
    params: {
      name: site.name
      location: site.region
      sku: site.tier
      capacity: site.units
      allowKeys: site.keys
      second: site.?second
      publicNetworkAccess: publicNetworkAccess
      tags: tags
    }
  }
]

module serviceBusEntities 'service-bus-entities.bicep' = [
  for site in serviceBusSites: if (deployEntities) {
    scope: resourceGroup(site.subscription, site.group)
    name: 'entities-${site.alias}-${unique}'
    params: {
      namespaceName: site.name
      queues: site.queues
      topics: site.topics
      subscriptions: site.subscriptions
    }
    dependsOn: [serviceBusNamespaces]
  }
]

module eventHubsNamespaces 'event-hubs-namespace.bicep' = [
  for site in eventHubsSites: if (site.place == 'new') {
    name: 'namespace-${site.alias}'
    params: {
      name: site.name
      location: site.region
      sku: site.tier
      capacity: site.units
      maximumCapacity: site.maximumUnits
      allowKeys: site.keys
      second: site.?second
      publicNetworkAccess: publicNetworkAccess
      captureStorageName: journalHub.?alias == site.alias ? journalStorageName : ''
      tags: tags
    }
  }
]

// Capture writes with the identity of the namespace. That of a namespace that exists is left to its owner.
module eventHubsEntities 'event-hubs-entities.bicep' = [
  for site in eventHubsSites: if (deployEntities) {
    scope: resourceGroup(site.subscription, site.group)
    name: 'entities-${site.alias}-${unique}'
    params: {
      namespaceName: site.name
      hubs: site.hubs
      consumerGroups: site.consumerGroups
      capturedHub: site.place == 'new' && journalHub.?alias == site.alias ? journalHub!.name : ''
      captureStorageId: resourceId('Microsoft.Storage/storageAccounts', journalStorageName)
    }
    dependsOn: [eventHubsNamespaces]
  }
]
