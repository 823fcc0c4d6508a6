// The types of `tasks`, which `busway package` writes to tasks.json, and of the parameters that name namespaces.

@export()
@description('A queue, topic or hub: its name, and its properties as Resource Manager has them.')
type namedEntity = {
  name: string
  properties: object
}

@export()
@description('A subscription, and its only rule; without one it has $Default.')
type subscriptionEntity = {
  topic: string
  name: string
  properties: object
  rule: { name: string, properties: object }?
}

@export()
type consumerGroup = { hub: string, name: string }

@export()
type subscriptionName = { topic: string, name: string }

@export()
@description('A namespace: the entities that it needs, and what the app does with them.')
type siteType = {
  @description('Name of the connection in connections.yaml.')
  alias: string

  kind: 'service-bus' | 'event-hubs'

  @description('App setting of the connection.')
  setting: string

  queues: namedEntity[]
  topics: namedEntity[]
  subscriptions: subscriptionEntity[]
  hubs: namedEntity[]
  consumerGroups: consumerGroup[]
  receivesFrom: { queues: string[], subscriptions: subscriptionName[], hubs: string[] }
  sendsTo: { queues: string[], topics: string[], hubs: string[] }
}

@export()
@description('The journal: the app setting of its storage account, its container, and its hub if it is written to one.')
type journalType = {
  setting: string
  container: string
  hub: { alias: string, name: string }?
}

@export()
@description('What the tasks of a project need; `busway package` writes it.')
type tasksType = {
  @description('Version of Busway.')
  version: string

  sites: siteType[]

  @description('The functions of each task, by its name.')
  functions: { *: string[] }

  @description('Missing without a journal.')
  journal: journalType?

  @description('App settings of storage accounts that editors use.')
  stores: string[]

  @description('Secrets that connections and editors name.')
  secrets: string[]
}

@export()
@description('Where a namespace is. Everything is optional.')
type namespaceType = {
  @description('Name, unique in Azure; by default one is made of the name of the connection.')
  name: string?

  @description('Region; by default that of the app.')
  location: string?

  @description('Tier; by default that of serviceBusSku or eventHubsSku.')
  sku: ('Standard' | 'Premium')?

  @description('Messaging units of Service Bus Premium; throughput or processing units of Event Hubs. By default 1: each deployment sets it again, also if the namespace has raised it meanwhile.')
  capacity: int?

  @description('Throughput units to which an Event Hubs namespace of the Standard tier raises its capacity by itself; by default 10.')
  maximumCapacity: int?

  @description('Whether connection strings with keys may be used, as a shovel of RabbitMQ does; by default false: identities only.')
  keys: bool?

  @description('Of a new namespace: region of a second one, which has the same entities and takes over the name of the pair when a person says so. Service Bus Premium, Event Hubs Standard or Premium. Messages are not copied.')
  pairedRegion: string?

  @description('Whether the namespace exists; then only its entities and roles are deployed.')
  existing: bool?

  @description('Resource group of a namespace that exists; by default that of the deployment.')
  resourceGroup: string?

  @description('Subscription of a namespace that exists; by default that of the deployment.')
  subscription: string?

  @description('Host name of a namespace that others manage; nothing is deployed there.')
  host: string?
}

@export()
@description('The second namespace of a pair: its name and region, and the name of the pair.')
type secondType = {
  @maxLength(50)
  name: string

  @maxLength(50)
  pair: string

  region: string
}

@export()
@description('A site with its place.')
type placedSite = {
  alias: string
  kind: 'service-bus' | 'event-hubs'
  setting: string
  queues: namedEntity[]
  topics: namedEntity[]
  subscriptions: subscriptionEntity[]
  hubs: namedEntity[]
  consumerGroups: consumerGroup[]
  receivesFrom: { queues: string[], subscriptions: subscriptionName[], hubs: string[] }
  sendsTo: { queues: string[], topics: string[], hubs: string[] }

  @description('Name of the namespace.')
  name: string

  @description('`elsewhere`: others manage it. `unused`: no task names it.')
  place: 'new' | 'existing' | 'elsewhere' | 'unused'

  @description('Resource group of the namespace.')
  group: string

  @description('Subscription of that group.')
  subscription: string

  region: string
  tier: 'Standard' | 'Premium'
  units: int
  maximumUnits: int
  keys: bool

  @description('None without a pair.')
  second: secondType?
}

@export()
@description('A virtual network that exists, which the app joins instead of one of its own.')
type networkType = {
  @description('Subnet for the app, delegated to Microsoft.App/environments (Flex Consumption) or Microsoft.Web/serverFarms, at least a /27. It needs a way out to Entra ID, Resource Manager and Azure Monitor.')
  appSubnetId: string

  @description('Subnet for the private endpoints.')
  endpointSubnetId: string

  @description('Subnet for the jobs of the reconciliation, delegated to Microsoft.App/environments, at least a /27.')
  nightlySubnetId: string

  @description('Private DNS zones, by namespace, blob, file, vault and sites. Without it others register the endpoints, such as an Azure Policy.')
  zoneIds: object?
}
