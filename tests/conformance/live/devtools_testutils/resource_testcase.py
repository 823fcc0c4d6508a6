from devtools_testutils import RESOURCE_GROUP_PARAM  # noqa: F401 - tests import it
