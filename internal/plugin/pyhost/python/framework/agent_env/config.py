"""The configuration, as far as plugins may read it, and the stores behind it."""

from __future__ import annotations

from typing import Any, Dict, Optional

from . import _host
from ._stored import drop, read_and_drop, spill


class SecretStore:
    """Secrets by name, as far as the configuration grants them."""

    def get(self, name: str) -> Optional[str]:
        """The secret's value; None when there is none, or it isn't granted."""
        try:
            return _host.ask("host/secret.get", key=name).get("value")
        except PermissionError:
            return None


class ObjectStore:
    """Bytes by address."""

    def put(self, key: str, data: Any, content_type: Optional[str] = None, allow_overwrite: bool = True, **_: Any) -> str:
        """Stores bytes, a text or what can be read, and answers their address. Objects are named by what they hold: nothing is ever overwritten."""
        del allow_overwrite
        content = data.encode() if isinstance(data, str) else data.read() if hasattr(data, "read") else bytes(data)
        path = spill(content, key)
        try:
            return str(_host.ask("host/object.put", file=path, name=key, content_type=content_type)["url"])
        finally:
            drop(path)

    def get(self, url: str) -> bytes:
        """The bytes at an address. Raises LookupError for what isn't there."""
        try:
            answer = _host.ask("host/object.get", url=url)
        except PermissionError as e:
            raise LookupError(str(e)) from None
        return read_and_drop(answer["file"])


class Config:
    """What the configuration says. Values are read when they are asked for."""

    def get_secret_store(self) -> SecretStore:
        """The secrets."""
        return SecretStore()

    def get_object_store(self) -> ObjectStore:
        """The store that new objects go to."""
        return ObjectStore()

    def get_object_store_at(self, url: str) -> ObjectStore:
        """The store that has the object at an address."""
        del url
        return ObjectStore()

    def get_litellm_base_url(self) -> Optional[str]:
        """The address of the model endpoint."""
        return self.value("model.base_url")

    def get_litellm_api_key(self) -> Optional[str]:
        """The key of the model endpoint, where the configuration grants it to plugins."""
        return SecretStore().get("model.api_key")

    def value(self, key: str) -> Any:
        """A setting by its key, "agents.default"; None when it isn't set. Secrets read as None."""
        return _host.ask("host/config.get", key=key).get("value")


def get_config() -> Config:
    """The configuration of the running agent-env."""
    return Config()


def plugin_settings(distribution: str) -> Dict[str, Any]:
    """The table of a distribution in the configuration, references to secrets resolved; {} when it has none."""
    return dict(_host.ask("host/settings.get", distribution=distribution).get("settings") or {})
