// The alerts of alerts.yaml as rules over the workspace.

@description('Beginning of the names of the rules.')
param name string

@description('Region of the rules: that of the workspace.')
param location string

@description('Resource id of the workspace with the telemetry of the app.')
param workspaceId string

@description('Resource ids of the action groups to call.')
param actionGroupIds string[]

@description('Whether the app exports metrics.')
param hasMetrics bool

@description('Whether the app has a nightly reconciliation.')
param hasReconciliation bool

@description('Whether the app has a job that reconciles each hour.')
param hasHours bool

@description('Thresholds instead of those of alerts.yaml, by the name of the alert.')
param thresholds thresholdsType

@description('Address of the page with the runbook.')
param runbooks string

@export()
@sealed()
type thresholdsType = {
  stopped: int?
  held: int?
  lag: int?
  'not-measured': int?
  rejects: int?
  'dead-letters': int?
  'heartbeat-missed': int?
  losses: int?
  'journal-lost': int?
  'night-needs-somebody': int?
}

type alertType = {
  name: string
  title: string
  meaning: string
  runbook: string
  needs: 'metrics' | 'reconciliation' | 'hours'
  severity: int
  every: string?
  window: string
  threshold: int?
  missing: bool?
  event: bool?
  dimensions: string[]?
  query: string
}

var alerts alertType[] = loadYamlContent('alerts.yaml')
// Azure Monitor refuses a query about a table that it does not know yet, and with the rules the whole deployment
// (terraform-provider-azurerm 28293). Without any known table a union fails too, so it has an empty one with the columns.
var columns = {
  AppMetrics: 'TimeGenerated: datetime, Name: string, Sum: real, Properties: dynamic'
  AppRequests: 'TimeGenerated: datetime, Name: string, Success: bool, OperationId: string'
  ContainerAppConsoleLogs: 'TimeGenerated: datetime, Log: string'
  AppExceptions: 'TimeGenerated: datetime, InnermostMessage: string, OuterMessage: string, OperationId: string'
}
var has = { metrics: hasMetrics, reconciliation: hasReconciliation, hours: hasHours }
var deployed = filter(alerts, alert => has[alert.needs])

resource rules 'Microsoft.Insights/scheduledQueryRules@2021-08-01' = [
  for alert in deployed: {
    name: '${name}-${alert.name}'
    location: location
    kind: 'LogAlert'
    properties: {
      displayName: '${name}: ${alert.title}'
      description: '${alert.meaning} What to do: ${runbooks}#${alert.runbook}'
      severity: alert.severity
      enabled: true
      skipQueryValidation: true
      scopes: [
        workspaceId
      ]
      evaluationFrequency: alert.?every ?? 'PT5M'
      windowSize: alert.window
      autoMitigate: !(alert.?event ?? false)
      // What happened is reported once, however often the rule sees it in its window.
      muteActionsDuration: alert.?event ?? false ? alert.window : null
      criteria: {
        allOf: [
          union(
            {
              query: reduce(
                items(columns),
                alert.query,
                (query, table) =>
                  replace(
                    query,
                    'union isfuzzy=true ${table.key}',
                    'union isfuzzy=true ${table.key}, (datatable(${table.value}) [])'
                  )
              )
              failingPeriods: {
                numberOfEvaluationPeriods: 1
                minFailingPeriodsToAlert: 1
              }
            },
            alert.?missing ?? false
              ? {
                  timeAggregation: 'Count'
                  operator: 'LessThan'
                  threshold: 1
                }
              : {
                  timeAggregation: 'Maximum'
                  metricMeasureColumn: 'Value'
                  operator: 'GreaterThan'
                  threshold: thresholds[?alert.name] ?? alert.?threshold
                  dimensions: map(alert.?dimensions ?? [], dimension => {
                    name: dimension
                    operator: 'Include'
                    values: [
                      '*'
                    ]
                  })
                }
          )
        ]
      }
      actions: {
        actionGroups: actionGroupIds
        customProperties: {
          runbook: '${runbooks}#${alert.runbook}'
        }
      }
    }
  }
]
