// The parameters of a deployment; main.bicep and docs/azure-options.md describe all of them. `busway package` writes what the first
// two lines name.
using '../build/infra/main.bicep'

param tasks = loadJsonContent('../build/infra/tasks.json')

// Each namespace in its region, and those that exist already:
// param namespaces = { east: { location: 'northeurope' }, west: { name: 'my-namespace', existing: true } }
param namespaces = {}

// You, or who else runs busway apply, smoke, status and repair: az ad signed-in-user show --query id --output tsv
param operatorPrincipalId = readEnvironmentVariable('AZURE_PRINCIPAL_ID', '')

// The image of the nightly reconciliation, once it is built.
param reconcileImage = readEnvironmentVariable('RECONCILE_IMAGE', '')
