// The workspace for logs and metrics, and the Application Insights resource to which the app sends them.

@description('Name of the Function app.')
param name string

@description('Region of everything here.')
param location string

@description('Tags of all resources here.')
param tags object

resource logs 'Microsoft.OperationalInsights/workspaces@2023-09-01' = {
  name: '${name}-logs'
  location: location
  tags: tags
  properties: {
    sku: {
      name: 'PerGB2018'
    }
    retentionInDays: 30
  }
}

resource insights 'Microsoft.Insights/components@2020-02-02' = {
  name: '${name}-insights'
  location: location
  tags: tags
  kind: 'web'
  properties: {
    Application_Type: 'web'
    WorkspaceResourceId: logs.id
    DisableLocalAuth: true
  }
}

output workspaceId string = logs.id
output insightsName string = insights.name
