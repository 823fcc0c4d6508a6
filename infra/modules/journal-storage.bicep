// The storage account of the journals and of the results of their reconciliation. It is separate from the app's own
// account, which is deleted with the app.

@description('Name of the storage account.')
@minLength(3)
@maxLength(24)
param name string

@description('Region of the storage account.')
param location string

@description('Redundancy of the account.')
@allowed(['Standard_LRS', 'Standard_ZRS', 'Standard_GRS', 'Standard_GZRS'])
param redundancy string

@description('Container of the journal; that of the status has its name with `-status`.')
param container string

@description('Whether Capture writes the journal, to the container `journal-capture`.')
param isCaptured bool

@description('Days for which journals are kept, those that Capture wrote too. A run looks back for a week, and can be repeated as long as its journals exist.')
@minValue(9)
param journalDays int

@description('Days for which the results of the reconciliation are kept.')
@minValue(30)
param resultDays int

@description('Whether the account has a hierarchical namespace, which a cluster (Synapse, Fabric, Databricks) needs to rename a run in one step. It cannot be changed later.')
param hierarchicalNamespace bool

@description('Whether the app may only add to the journal, not change or delete what is there.')
param appendOnly bool

@description('Resource id of the definition of the role for that; empty: it is created, which needs the right to write role definitions.')
param appenderRoleId string

@description('Whether the account can be reached from public networks.')
@allowed(['Enabled', 'Disabled'])
param publicNetworkAccess string

@description('Object id of the identity that writes journals and reads results: the Function app.')
param appPrincipalId string

@description('Object id of an operator, who reads and repairs; empty for none.')
param operatorPrincipalId string

@description('Whether the operator is a person, a group or an application.')
param operatorPrincipalType string

@description('Tags of the account.')
param tags object

var storageBlobDataContributor = 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'

resource storage 'Microsoft.Storage/storageAccounts@2023-05-01' = {
  name: name
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: {
    name: redundancy
  }
  properties: {
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    allowBlobPublicAccess: false
    allowSharedKeyAccess: false
    // Event Hubs writes as a trusted service, for which the public endpoint must exist; it lets nobody else in.
    publicNetworkAccess: isCaptured ? 'Enabled' : publicNetworkAccess
    networkAcls: {
      bypass: 'AzureServices'
      defaultAction: publicNetworkAccess == 'Disabled' ? 'Deny' : 'Allow'
    }
    isHnsEnabled: hierarchicalNamespace
  }

  resource blobs 'blobServices' = {
    name: 'default'

    resource journal 'containers' = {
      name: container
    }

    resource status 'containers' = {
      name: '${container}-status'
    }

    resource captured 'containers' = if (isCaptured) {
      name: 'journal-capture'
    }

    resource reconciliation 'containers' = {
      name: 'reconciliation'
    }
  }

  resource lives 'managementPolicies' = {
    name: 'default'
    properties: {
      policy: {
        rules: [
          {
            name: 'old-journals'
            type: 'Lifecycle'
            enabled: true
            definition: {
              filters: {
                blobTypes: [
                  'appendBlob'
                ]
                prefixMatch: [
                  '${container}/task='
                ]
              }
              actions: {
                baseBlob: {
                  delete: {
                    daysAfterModificationGreaterThan: journalDays
                  }
                }
              }
            }
          }
          {
            name: 'old-captures'
            type: 'Lifecycle'
            enabled: isCaptured
            definition: {
              filters: {
                blobTypes: [
                  'blockBlob'
                ]
                prefixMatch: [
                  'journal-capture/'
                ]
              }
              actions: {
                baseBlob: {
                  delete: {
                    daysAfterModificationGreaterThan: journalDays
                  }
                }
              }
            }
          }
          {
            // Not the file compacted/journal.json, which is written once and says whose journal this is.
            name: 'old-results'
            type: 'Lifecycle'
            enabled: true
            definition: {
              filters: {
                blobTypes: [
                  'blockBlob'
                ]
                prefixMatch: [
                  'reconciliation/runs/'
                  'reconciliation/manifests/'
                  'reconciliation/nightly/'
                  'reconciliation/compacted/hours/'
                  'reconciliation/compacted/records/'
                  'reconciliation/compacted/troubles/'
                ]
              }
              actions: {
                baseBlob: {
                  delete: {
                    daysAfterModificationGreaterThan: resultDays
                  }
                }
              }
            }
          }
        ]
      }
    }
  }
}

// Creating an append blob, appending a block and reading its length need only these. Without `write` and `delete`, what is in
// the journal stays as it is until the lifecycle rule above deletes it.
resource journalAppender 'Microsoft.Authorization/roleDefinitions@2022-04-01' = if (appendOnly && empty(appenderRoleId)) {
  name: guid(resourceGroup().id, name, 'journal-appender')
  properties: {
    roleName: 'Busway journal appender (${name})'
    description: 'Add append blobs and blocks to the journal, and read them.'
    type: 'CustomRole'
    assignableScopes: [
      resourceGroup().id
    ]
    permissions: [
      {
        dataActions: [
          'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read'
          'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/add/action'
        ]
      }
    ]
  }
}

resource appWritesJournals 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: storage::blobs::journal
  name: guid(
    storage::blobs::journal.id,
    appPrincipalId,
    appendOnly ? 'append${appenderRoleId}' : storageBlobDataContributor
  )
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: appendOnly
      ? (empty(appenderRoleId) ? journalAppender.id : appenderRoleId)
      : subscriptionResourceId('Microsoft.Authorization/roleDefinitions', storageBlobDataContributor)
  }
}

// Its instances replace their status there every few seconds, and delete that of others after a day.
resource appWritesStatus 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: storage::blobs::status
  name: guid(storage::blobs::status.id, appPrincipalId, storageBlobDataContributor)
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', storageBlobDataContributor)
  }
}

// The app reads results there and stores the state of each night.
resource appReadsResults 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: storage::blobs::reconciliation
  name: guid(storage::blobs::reconciliation.id, appPrincipalId, storageBlobDataContributor)
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', storageBlobDataContributor)
  }
}

resource operates 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(operatorPrincipalId)) {
  scope: storage
  name: guid(storage.id, operatorPrincipalId, storageBlobDataContributor)
  properties: {
    principalId: operatorPrincipalId
    principalType: operatorPrincipalType
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', storageBlobDataContributor)
  }
}

output name string = storage.name
output id string = storage.id
