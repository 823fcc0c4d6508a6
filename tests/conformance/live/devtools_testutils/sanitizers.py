from devtools_testutils import (  # noqa: F401 - tests import them
    add_general_regex_sanitizer,
    add_oauth_response_sanitizer,
    add_remove_header_sanitizer,
)
