// The entities that tasks need, in Service Bus and Event Hubs namespaces that exist in this resource group.
//
// busway plan --bicep prints the parameter file from the tasks and topology.yaml:
//   busway plan --bicep > entities.bicepparam
//   az deployment group what-if --resource-group GROUP --template-file infra/entities.bicep --parameters entities.bicepparam
//   az deployment group create  --resource-group GROUP --template-file infra/entities.bicep --parameters entities.bicepparam
//
// Resource Manager removes $Default from a new subscription when it creates the first other rule; messages that are
// sent before that moment pass $Default. Deploy before traffic, or let `busway apply` create the entities, which has no
// such moment.

targetScope = 'resourceGroup'

@description('Name of the Service Bus namespace, and its entities, for each site.')
param serviceBusSites serviceBusSite[] = []

@description('Name of the Event Hubs namespace, and its entities, for each site.')
param eventHubsSites eventHubsSite[] = []

@description('A queue: its name, and its properties as Microsoft.ServiceBus/namespaces/queues has them.')
type namedEntity = {
  name: string
  properties: object
}

@description('A subscription, and its only rule; without one it has $Default.')
type subscriptionEntity = {
  topic: string
  name: string
  properties: object
  rule: object?
}

type serviceBusSite = {
  namespace: string
  queues: namedEntity[]
  topics: namedEntity[]
  subscriptions: subscriptionEntity[]
}

type eventHubsSite = {
  namespace: string
  hubs: namedEntity[]
  consumerGroups: { hub: string, name: string }[]
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
