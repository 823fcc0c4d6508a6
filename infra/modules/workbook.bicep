// The workbook of Azure Monitor: the state of the tasks, and the charts of their metrics.

@description('Name of the Function app.')
param name string

@description('Region of the workbook.')
param location string

@description('Resource id of the workspace with the telemetry of the app.')
param workspaceId string

resource workbook 'Microsoft.Insights/workbooks@2023-06-01' = {
  name: guid(resourceGroup().id, name, 'workbook')
  location: location
  kind: 'shared'
  properties: {
    displayName: '${name}: replication'
    category: 'workbook'
    sourceId: workspaceId
    serializedData: string(loadJsonContent('workbook.json'))
  }
}
