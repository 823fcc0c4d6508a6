"""
Replaces the package of this name in Microsoft's repository, which is not published: live tests import it.

Its preparers create entities for a test and delete them afterwards. Here they always run live, against the broker.
"""

import asyncio
import functools
import inspect
import os
import random
import time
from typing import Any, ClassVar

RESOURCE_GROUP_PARAM = "resource_group"


class AzureTestError(Exception):
    pass


class ReservedResourceNameError(Exception):
    pass


class FakeResource:
    def __init__(self, name, id):  # noqa: A002 - the tests name it so
        self.name = name
        self.id = id


class AzureRecordedTestCase:
    is_live = True

    def get_resource_name(self, name):
        return name + f"{random.getrandbits(24):06x}"

    def create_random_name(self, name):
        return self.get_resource_name(name)

    @staticmethod
    def await_prepared_test(function):
        @functools.wraps(function)
        def run(test, *arguments, **given):
            return asyncio.run(function(test, *arguments, **given))

        return run


AzureMgmtRecordedTestCase = AzureRecordedTestCase


class _Token:
    token = "local"
    expires_on = 2**31

    def __iter__(self):
        return iter((self.token, self.expires_on))


class _Credential:
    def get_token(self, *scopes, **options):
        from azure.core.credentials import AccessToken

        return AccessToken("local", int(time.time()) + 3600)

    def get_token_info(self, *scopes, options=None):
        from azure.core.credentials import AccessTokenInfo

        return AccessTokenInfo("local", int(time.time()) + 3600)

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


class _AsyncCredential(_Credential):
    async def get_token(self, *scopes, **options):
        return super().get_token(*scopes, **options)

    async def get_token_info(self, *scopes, options=None):
        return super().get_token_info(*scopes, options=options)

    async def close(self):
        pass

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        pass


def get_credential(*, is_async=False, **options):
    return _AsyncCredential() if is_async else _Credential()


def get_region_override(default):
    return default


def recorded_by_proxy(function):
    return function


def _nothing(*arguments, **options):
    return None


add_general_regex_sanitizer = add_remove_header_sanitizer = add_oauth_response_sanitizer = _nothing
set_custom_default_matcher = _nothing


def _wrapped(function, prepare):
    """Return *function* with the arguments that *prepare* yields, hidden from pytest: it has no fixtures for them."""
    parameters = inspect.signature(function).parameters.values()
    takes_all = hasattr(function, "is_prepared") or any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters
    )
    names = {parameter.name for parameter in parameters}

    def accepted(given):
        return {name: value for name, value in given.items() if takes_all or name in names}

    if inspect.iscoroutinefunction(function):

        async def wrapper(test, *arguments, **given):
            with prepare(given) as found:
                return await function(test, *arguments, **accepted({**given, **found}))

    else:

        def wrapper(test, *arguments, **given):
            with prepare(given) as found:
                return function(test, *arguments, **accepted({**given, **found}))

    functools.update_wrapper(wrapper, function)
    wrapper.is_prepared = True
    shown = [
        parameter
        for parameter in parameters
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and parameter.default is parameter.empty
    ]
    hidden = getattr(prepare, "names", ())
    wrapper.__signature__ = inspect.Signature([each for each in shown if each.name not in hidden])
    return wrapper


class _Prepared:
    def __init__(self, preparer, given):
        self.preparer = preparer
        self.given = given

    def __enter__(self):
        self.found, self.is_cached = self.preparer.prepare(self.given)
        return self.found

    def __exit__(self, *error):
        if not self.is_cached:
            self.preparer.remove_resource(self.preparer.name, **{**self.given, **self.found})


class AzureMgmtPreparer:
    _cache: ClassVar[dict[Any, Any]] = {}

    def __init__(self, name_prefix, random_name_length, **options):
        self.name_prefix = name_prefix
        self.random_name_length = random_name_length
        self.random_name_enabled = options.get("random_name_enabled", False)
        self.client_kwargs = options.get("client_kwargs") or {}
        self.is_live = True
        self.resource_random_name = None
        self.resource_moniker = self.moniker = name_prefix
        self.test_class_instance = None
        self.resource = None
        self._use_cache = False
        self._cache_key = ()

    def set_cache(self, enabled, *key):
        self._use_cache = enabled
        self._cache_key = (type(self).__name__, *map(str, key))

    def create_mgmt_client(self, client_class, **options):
        return client_class(None, "subscription", **options)

    def prepare(self, given):
        parents = tuple(sorted(str(getattr(each, "name", "")) for each in given.values() if hasattr(each, "name")))
        key = (*self._cache_key, self.name_prefix, parents)
        if self._use_cache and key in self._cache:
            return self._cache[key], True
        self.name = f"{self.name_prefix or 'name'}{random.getrandbits(40):010x}"[: self.random_name_length]
        found = self.create_resource(self.name, **given) or {}
        if self._use_cache:
            self._cache[key] = found
        return found, self._use_cache

    def create_resource(self, name, **given):
        return {}

    def remove_resource(self, name, **given):
        pass

    def __call__(self, function):
        return _wrapped(function, functools.partial(_Prepared, self))


class ResourceGroupPreparer(AzureMgmtPreparer):
    def __init__(self, name_prefix="", **options):
        super().__init__(name_prefix, 60)

    def create_resource(self, name, **given):
        return {RESOURCE_GROUP_PARAM: FakeResource(name, name), "location": "local"}


CachedResourceGroupPreparer = RandomNameResourceGroupPreparer = ResourceGroupPreparer


class _Environment:
    """The arguments of a test that come from the environment, by their names in upper case."""

    def __init__(self, names):
        self.names = names

    def __call__(self, given):
        return self

    def __enter__(self):
        return {name: os.environ.get(name.upper(), "unknown") for name in self.names}

    def __exit__(self, *error):
        pass


class PowerShellPreparer:
    def __init__(self, directory, **fakes):
        self._names = tuple(fakes)

    def __call__(self, function):
        return _wrapped(function, _Environment(self._names))
