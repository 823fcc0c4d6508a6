// The reconciliation as jobs of Azure Container Apps: one that the app's timer starts for each day, and one that starts
// every hour.

@description('Name of the job that the app starts.')
@maxLength(25)
param name string

@description('Region of the job and its environment.')
param location string

@description('The image, built from jobs/reconcile/Dockerfile: REGISTRY/NAME:TAG. Empty: an image of Python, which ends at once without a result.')
param image string

@description('Name of the container registry in this resource group that has the image; empty if anyone may pull it.')
param registryName string

@description('Name of the storage account with the containers of the journal and of the results.')
param storageName string

@description('Container of the journal.')
param container string

@description('Subnet of the environment, delegated to Microsoft.App/environments; empty for none.')
param subnetId string

@description('Whether the environment is spread over availability zones; only in a network.')
param zoneRedundant bool

@description('Tags of all resources here.')
param tags object

@description('Resource id of the workspace for the logs.')
param workspaceId string

@description('Object id of the identity that starts the job: the Function app.')
param appPrincipalId string

@description('Whether a second job reconciles each closed hour.')
param hourly bool

@description('Seconds after which an execution is ended and counts as failed.')
@minValue(600)
param timeoutSeconds int = 10800

var storageBlobDataContributor = 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'
var storageBlobDataReader = '2a2b9908-6ea1-4ae2-8e65-a410df84e7d1'
var containerAppsJobsOperator = 'b9a307c4-5aa3-4b52-ba60-2b17c136cd7b'

resource storage 'Microsoft.Storage/storageAccounts@2023-05-01' existing = {
  name: storageName
}

var jobs = hourly ? [name, '${name}-hourly'] : [name]

resource registry 'Microsoft.ContainerRegistry/registries@2023-07-01' existing = if (!empty(registryName)) {
  name: empty(registryName) ? 'none' : registryName
}

// User-assigned, because the image is pulled before a system-assigned identity of the job would exist.
resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: '${name}-identity'
  location: location
  tags: tags
}

resource containers 'Microsoft.App/managedEnvironments@2024-03-01' = {
  name: '${name}-environment'
  location: location
  tags: tags
  properties: union(
    {
      appLogsConfiguration: {
        destination: 'azure-monitor'
      }
      workloadProfiles: [
        {
          name: 'Consumption'
          workloadProfileType: 'Consumption'
        }
      ]
    },
    empty(subnetId)
      ? {}
      : { vnetConfiguration: { infrastructureSubnetId: subnetId, internal: true }, zoneRedundant: zoneRedundant }
  )
}

resource logs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  scope: containers
  name: 'to-workspace'
  properties: {
    workspaceId: workspaceId
    logs: [
      {
        category: 'ContainerAppConsoleLogs'
        enabled: true
      }
      {
        category: 'ContainerAppSystemLogs'
        enabled: true
      }
    ]
  }
}

resource job 'Microsoft.App/jobs@2024-03-01' = [
  for each in jobs: {
    name: each
    location: location
    tags: tags
    identity: {
      type: 'UserAssigned'
      userAssignedIdentities: {
        '${identity.id}': {}
      }
    }
    properties: {
      environmentId: containers.id
      workloadProfileName: 'Consumption'
      configuration: {
        triggerType: each == name ? 'Manual' : 'Schedule'
        manualTriggerConfig: each == name
          ? {
              parallelism: 1
              replicaCompletionCount: 1
            }
          : null
        // An hour is closed ten minutes after its end.
        scheduleTriggerConfig: each == name
          ? null
          : {
              cronExpression: '12 * * * *'
              parallelism: 1
              replicaCompletionCount: 1
            }
        // An execution can hang without a line in its log (microsoft/azure-container-apps 1656).
        replicaTimeout: each == name ? timeoutSeconds : min(timeoutSeconds, 2400)
        // The container exits with 0 for every result, findings included, and with another code only without a result.
        replicaRetryLimit: 1
        registries: empty(registryName)
          ? []
          : [
              {
                server: registry!.properties.loginServer
                identity: identity.id
              }
            ]
      }
      template: {
        containers: [
          {
            name: 'reconcile'
            // Python without input ends at once.
            image: empty(image)
              ? 'docker.io/library/python:3.13.5-slim-bookworm@sha256:4c2cf9917bd1cbacc5e9b07320025bdb7cdf2df7b0ceaccb55e9dd7e30987419'
              : image
            // The app adds --date to those of the first job; the default is yesterday.
            command: empty(image) ? ['python', '-c', 'pass'] : []
            args: concat(
              [
                '--journal'
                '${storage.properties.primaryEndpoints.blob}${container}'
                '--results'
                '${storage.properties.primaryEndpoints.blob}reconciliation'
                '--memory'
                '5g'
              ],
              each == name ? [] : ['--hourly']
            )
            env: [
              {
                // Tells DefaultAzureCredential which identity of the job to use.
                name: 'AZURE_CLIENT_ID'
                value: identity.properties.clientId
              }
            ]
            resources: {
              cpu: json('4')
              memory: '8Gi'
            }
          }
        ]
      }
    }
    dependsOn: [
      jobPulls
      jobReadsJournals
      jobWritesResults
    ]
  }
]

module jobReadsJournals 'storage-role.bicep' = {
  name: 'job-reads-journals'
  params: {
    storageName: storageName
    container: container
    principalId: identity.properties.principalId
    role: storageBlobDataReader
  }
}

module jobWritesResults 'storage-role.bicep' = {
  name: 'job-writes-results'
  params: {
    storageName: storageName
    container: 'reconciliation'
    principalId: identity.properties.principalId
    role: storageBlobDataContributor
  }
}

module jobPulls 'registry-role.bicep' = if (!empty(registryName)) {
  name: 'job-pulls'
  params: {
    registryName: registryName
    principalId: identity.properties.principalId
  }
}

// Allows reading and starting the job and listing its executions, not changing what it runs.
resource appStarts 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: job[0]
  name: guid(job[0].id, appPrincipalId, containerAppsJobsOperator)
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', containerAppsJobsOperator)
  }
}
