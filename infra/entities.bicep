// The entities that tasks need, in Service Bus and Event Hubs namespaces that exist in this resource group. infra/main.bicep
// deploys them together with the app; this file is for namespaces whose app is deployed in another way.
//
// busway plan --bicep prints the parameter file from the tasks and topology.yaml:
//   busway plan --bicep > entities.bicepparam
//   az deployment group what-if --resource-group GROUP --template-file infra/entities.bicep --parameters entities.bicepparam
//   az deployment group create  --resource-group GROUP --template-file infra/entities.bicep --parameters entities.bicepparam
//
// Resource Manager removes $Default from a new subscription when it creates the first other rule; messages that are
// sent before that moment pass $Default. Deploy before traffic, or let `busway apply` create the entities, which has no
// such moment.

import { consumerGroup, namedEntity, subscriptionEntity } from 'modules/types.bicep'

targetScope = 'resourceGroup'

@description('Name of the Service Bus namespace, and its entities, for each site.')
param serviceBusSites serviceBusSite[] = []

@description('Name of the Event Hubs namespace, and its entities, for each site.')
param eventHubsSites eventHubsSite[] = []

type serviceBusSite = {
  namespace: string
  queues: namedEntity[]
  topics: namedEntity[]
  subscriptions: subscriptionEntity[]
}

type eventHubsSite = {
  namespace: string
  hubs: namedEntity[]
  consumerGroups: consumerGroup[]
}

module serviceBus 'modules/service-bus-entities.bicep' = [
  for site in serviceBusSites: {
    name: 'entities-${uniqueString(site.namespace)}'
    params: {
      namespaceName: site.namespace
      queues: site.queues
      topics: site.topics
      subscriptions: site.subscriptions
    }
  }
]

module eventHubs 'modules/event-hubs-entities.bicep' = [
  for site in eventHubsSites: {
    name: 'hubs-${uniqueString(site.namespace)}'
    params: {
      namespaceName: site.namespace
      hubs: site.hubs
      consumerGroups: site.consumerGroups
    }
  }
]
