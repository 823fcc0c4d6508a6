// One site: a Service Bus namespace with the entities that the demo's tasks read and write.

@description('Name of the namespace.')
param name string

@description('Region of the namespace.')
param location string

@description('Service Bus tier.')
@allowed(['Standard', 'Premium'])
param sku string

@description('Whether payments sent here are copied to the other site. True on the active site only: on the passive site nothing would read the subscription.')
param copiesPayments bool

@description('Whether the namespace can be reached from public networks.')
@allowed(['Enabled', 'Disabled'])
param publicNetworkAccess string

// At-least-once delivery repeats a message if its settlement is lost. Busway keeps message_id, so the namespace
// detects the duplicate within this window.
var duplicateWindow = 'PT10M'

// Functions does not renew the locks of a batch. One minute is enough for 100 messages, and a short wait if an
// instance dies with a batch.
var lockDuration = 'PT1M'

// Busway rejects bad messages itself. The delivery count rises in a long outage of the target, when messages must not
// go to the dead-letter queue; this is the highest value that Service Bus allows.
var deliveriesThroughAnOutage = 2000

// A replicated message has the property that this action sets, and is not replicated back. Without it two sites would
// send one message to each other forever. `replication <> 1` would select nothing, because a comparison with a
// missing property is unknown, and unknown is not true.
//
// This must be the only rule of its subscription. Each matching rule with an action makes its own copy, so $Default
// would add an unmarked copy, which bounces. Resource Manager removes $Default when the first other rule is created.
// Messages sent before that moment pass $Default, so deploy before traffic. A later deployment finds the rule in place
// and has no such window.
var loopRule = {
  filterType: 'SqlFilter'
  sqlFilter: {
    sqlExpression: 'replication IS NULL'
  }
  action: {
    sqlExpression: 'SET replication = 1'
  }
}

// Workers read `jobs`. A job that they dead-letter goes to `jobs` of the other site and, if it fails there too, to
// `jobs-auxiliary`. The queues named `-rejected` hold what Busway rejected, one per task, for a person to inspect.
// `orders` is for the first task in the README.
var queues = [
  'orders'
  'orders-rejected'
  'jobs'
  'jobs-auxiliary'
  'jobs-rejected'
  'events-rejected'
  'payments-rejected'
]

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' = {
  name: name
  location: location
  sku: {
    name: sku
    tier: sku
  }
  properties: {
    minimumTlsVersion: '1.2'
    // The app uses its identity. Give applications roles too, or set this to false for those that need keys.
    disableLocalAuth: true
    publicNetworkAccess: publicNetworkAccess
  }
}

resource queue 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' = [
  for queueName in queues: {
    parent: namespace
    name: queueName
    properties: {
      lockDuration: lockDuration
      // A failing job spills over soon; rejected messages wait for a person.
      maxDeliveryCount: queueName == 'jobs' ? 3 : 10
      requiresDuplicateDetection: true
      duplicateDetectionHistoryTimeWindow: duplicateWindow
    }
  }
]

resource events 'Microsoft.ServiceBus/namespaces/topics@2024-01-01' = {
  parent: namespace
  name: 'events'
  properties: {
    requiresDuplicateDetection: true
    duplicateDetectionHistoryTimeWindow: duplicateWindow
  }

  // All messages, sent here or replicated from the other site.
  resource application 'subscriptions' = {
    name: 'application'
    properties: {
      requiresSession: true
      lockDuration: lockDuration
      maxDeliveryCount: 10
      deadLetteringOnMessageExpiration: true
    }
  }

  resource replication 'subscriptions' = {
    name: 'replication'
    properties: {
      requiresSession: true
      lockDuration: lockDuration
      maxDeliveryCount: deliveriesThroughAnOutage
      // An error in the rule must be visible.
      deadLetteringOnFilterEvaluationExceptions: true
    }

    resource rule 'rules' = {
      name: 'not-replicated'
      properties: loopRule
    }
  }
}

resource payments 'Microsoft.ServiceBus/namespaces/topics@2024-01-01' = {
  parent: namespace
  name: 'payments'
  properties: {
    requiresDuplicateDetection: true
    duplicateDetectionHistoryTimeWindow: duplicateWindow
  }

  // On the passive site copies expire after the two minutes that the task sets. After a failover, consumers find the last
  // two minutes and not a backlog of messages that were processed long ago.
  resource application 'subscriptions' = {
    name: 'application'
    properties: {
      lockDuration: lockDuration
      maxDeliveryCount: 10
    }
  }
}

resource paymentsReplication 'Microsoft.ServiceBus/namespaces/topics/subscriptions@2024-01-01' = if (copiesPayments) {
  parent: payments
  name: 'replication'
  properties: {
    lockDuration: lockDuration
    maxDeliveryCount: deliveriesThroughAnOutage
    deadLetteringOnFilterEvaluationExceptions: true
  }
}

resource paymentsReplicationRule 'Microsoft.ServiceBus/namespaces/topics/subscriptions/rules@2024-01-01' = if (copiesPayments) {
  parent: paymentsReplication
  name: 'not-replicated'
  properties: loopRule
}

output name string = namespace.name
// serviceBusEndpoint is https://NAME.servicebus.windows.net:443/, with the domain of the cloud in use.
output fullyQualifiedNamespace string = replace(
  replace(namespace.properties.serviceBusEndpoint, 'https://', ''),
  ':443/',
  ''
)
