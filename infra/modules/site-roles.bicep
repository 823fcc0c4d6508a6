// The roles of the app and of an operator in the namespaces of all sites.

import { placedSite } from 'types.bicep'

@description('The sites whose entities are deployed.')
param sites placedSite[]

@description('Object id of the identity of the app.')
param principalId string

@description('Whether the roles of the app apply to the namespaces or to the entities of its tasks.')
@allowed(['namespace', 'entities'])
param scope string

@description('Whether the app gets Data Owner instead of Data Receiver on its sources, so that Functions may count their messages.')
param scaleByBacklog bool

@description('Object id of an operator; empty for none.')
param operatorPrincipalId string

@description('Whether the operator is a person, a group or an application.')
param operatorPrincipalType string

@description('End of the names of deployments.')
param unique string

module serviceBus 'service-bus-roles.bicep' = [
  for site in filter(sites, site => site.kind == 'service-bus'): {
    scope: resourceGroup(site.subscription, site.group)
    name: 'roles-${site.alias}-${unique}'
    params: {
      namespaceName: site.name
      principalId: principalId
      scope: scope
      scaleByBacklog: scaleByBacklog
      receivesFrom: site.receivesFrom
      sendsTo: site.sendsTo
      operatorPrincipalId: operatorPrincipalId
      operatorPrincipalType: operatorPrincipalType
    }
  }
]

module eventHubs 'event-hubs-roles.bicep' = [
  for site in filter(sites, site => site.kind == 'event-hubs'): {
    scope: resourceGroup(site.subscription, site.group)
    name: 'roles-${site.alias}-${unique}'
    params: {
      namespaceName: site.name
      principalId: principalId
      scope: scope
      receivesFrom: site.receivesFrom
      sendsTo: site.sendsTo
      operatorPrincipalId: operatorPrincipalId
      operatorPrincipalType: operatorPrincipalType
    }
  }
]

// A pair copies the entities of its namespace, but no roles: those in the second one are about the whole namespace.
module pairedServiceBus 'service-bus-roles.bicep' = [
  for site in filter(sites, site => site.kind == 'service-bus' && site.?second != null): {
    name: 'roles-${site.alias}-pair-${unique}'
    params: {
      namespaceName: site.second!.name
      principalId: principalId
      scope: 'namespace'
      scaleByBacklog: scaleByBacklog
      receivesFrom: site.receivesFrom
      sendsTo: site.sendsTo
      operatorPrincipalId: operatorPrincipalId
      operatorPrincipalType: operatorPrincipalType
    }
  }
]

module pairedEventHubs 'event-hubs-roles.bicep' = [
  for site in filter(sites, site => site.kind == 'event-hubs' && site.?second != null): {
    name: 'roles-${site.alias}-pair-${unique}'
    params: {
      namespaceName: site.second!.name
      principalId: principalId
      scope: 'namespace'
      receivesFrom: site.receivesFrom
      sendsTo: site.sendsTo
      operatorPrincipalId: operatorPrincipalId
      operatorPrincipalType: operatorPrincipalType
    }
  }
]
