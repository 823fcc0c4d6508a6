// The alerts for a nightly reconciliation that needs a person. docs/operations.md says what to do then.
//
// A log level may drop log lines, but failed invocations are always reported: so the app's timer fails if a person must
// act, and the rule counts the failures.

@description('Beginning of the names of the rules.')
param name string

@description('Region of the rules: that of the workspace.')
param location string

@description('Resource id of the workspace with the telemetry of the app.')
param workspaceId string

@description('Resource ids of the action groups to call.')
param actionGroupIds array

resource needsSomebody 'Microsoft.Insights/scheduledQueryRules@2021-08-01' = {
  name: '${name}-night-needs-somebody'
  location: location
  kind: 'LogAlert'
  properties: {
    displayName: '${name}: a night needs somebody'
    description: 'The nightly reconciliation has findings, could not decide, has no result, or cannot be started.'
    severity: 1
    enabled: true
    scopes: [
      workspaceId
    ]
    evaluationFrequency: 'PT5M'
    // Longer than telemetry takes to arrive. An alert does not resolve by itself: each night is reported once.
    windowSize: 'PT30M'
    muteActionsDuration: 'PT30M'
    autoMitigate: false
    criteria: {
      allOf: [
        {
          query: '''
            AppRequests
            | where Name == 'nightly-reconciliation' and Success == false
            | join kind=leftouter (
                AppExceptions
                | summarize Text = take_any(strcat(InnermostMessage, ' ', OuterMessage)) by OperationId
              ) on OperationId
            | extend What = coalesce(extract(@'(nightly reconciliation of \d{4}-\d{2}-\d{2}: [^.]+)', 1, Text), 'cannot be started or read')
            '''
          timeAggregation: 'Count'
          operator: 'GreaterThan'
          threshold: 0
          dimensions: [
            {
              name: 'What'
              operator: 'Include'
              values: [
                '*'
              ]
            }
          ]
          failingPeriods: {
            numberOfEvaluationPeriods: 1
            minFailingPeriodsToAlert: 1
          }
        }
      ]
    }
    actions: {
      actionGroups: actionGroupIds
    }
  }
}

resource nobodyLooks 'Microsoft.Insights/scheduledQueryRules@2021-08-01' = {
  name: '${name}-nobody-looks-after-nights'
  location: location
  kind: 'LogAlert'
  properties: {
    displayName: '${name}: the nightly timer does not run'
    description: 'The timer of the nightly reconciliation has not been called for six hours.'
    severity: 2
    enabled: true
    scopes: [
      workspaceId
    ]
    evaluationFrequency: 'PT1H'
    windowSize: 'PT6H'
    autoMitigate: true
    criteria: {
      allOf: [
        {
          query: 'AppRequests | where Name == \'nightly-reconciliation\''
          timeAggregation: 'Count'
          operator: 'LessThan'
          threshold: 1
          failingPeriods: {
            numberOfEvaluationPeriods: 1
            minFailingPeriodsToAlert: 1
          }
        }
      ]
    }
    actions: {
      actionGroups: actionGroupIds
    }
  }
}
