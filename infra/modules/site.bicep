// One site: a Service Bus namespace with the entities that the demo's tasks read and write.

@description('Name of the namespace.')
param name string

@description('Region of the namespace.')
param location string

@description('Service Bus tier.')
@allowed(['Standard', 'Premium'])
param sku string

@description('Whether payments sent here are copied to the other site. True on the active site only: on the passive one nobody would empty the subscription.')
param copiesPayments bool

// At-least-once delivery sends a message again when its settlement is lost. Busway keeps message_id, so the
// namespace recognises the second copy within this window.
var duplicateWindow = 'PT10M'

// Batches get no lock renewal from Functions. One minute is time enough for 100 messages, and little to wait for when
// an instance dies with a batch in hand.
var lockDuration = 'PT1M'

// Busway sets bad messages aside itself. What counts deliveries up is an outage of the target, during which nothing
// may drain into the dead-letter queue; this is the most that Service Bus allows.
var deliveriesThroughAnOutage = 2000

// A message that Busway brought carries the mark that this action sets, and is not carried back: without it two sites
// would send one message to each other for ever. `replication <> 1` would select nothing at all, since a comparison
// with a property that is not there is unknown, and unknown is not true.
//
// This must be the only rule of its subscription. Each matching rule with an action makes a copy of its own, so
// $Default beside it would let an unmarked copy through, which bounces. Resource Manager removes $Default when the
// first rule of one's own is made; messages sent before that moment pass $Default, so deploy before traffic. A later
// deployment finds the rule in place and opens no such window.
var loopRule = {
  filterType: 'SqlFilter'
  sqlFilter: {
    sqlExpression: 'replication IS NULL'
  }
  action: {
    sqlExpression: 'SET replication = 1'
  }
}

// jobs is what the workers read. What they give up on goes to `jobs` of the other site and, when it fails there as well,
// to `jobs-auxiliary`. The others hold what Busway rejected: one per task, for a person to look at.
// orders is for the first task of whoever reads the README.
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
    // The app comes with its identity. Give applications roles too, or set this to false for those that need keys.
    disableLocalAuth: true
  }
}

resource queue 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' = [
  for queueName in queues: {
    parent: namespace
    name: queueName
    properties: {
      lockDuration: lockDuration
      // A job that fails spills over soon; what has been set aside is for people to look at.
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

  // Everything, sent here or brought from the other site.
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
      // An error in the rule must be seen, not swallowed.
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

  // On the passive site the copies live for the two minutes that the task stamps on them, then expire: whoever fails
  // over finds the last two minutes, not a backlog of what was handled long ago.
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
// serviceBusEndpoint reads https://NAME.servicebus.windows.net:443/ and names the right cloud.
output fullyQualifiedNamespace string = replace(replace(namespace.properties.serviceBusEndpoint, 'https://', ''), ':443/', '')
