from devtools_testutils import recorded_by_proxy as recorded_by_proxy_async  # noqa: F401 - tests import it
