# What a dashboard needs that a deployment has not configured yet: it starts, and finds no cloud.
import os

from horizon.utils import secret_key

DEBUG = False
ALLOWED_HOSTS = ["*"]
OPENSTACK_KEYSTONE_URL = "http://127.0.0.1:5000/v3"
POLICY_FILES_PATH = "/etc/openstack-dashboard"
# Made at the first start, and never in an image. Who runs several gives all of them the same one.
SECRET_KEY = secret_key.generate_or_read_from_file(
    os.environ.get("HORIZON_SECRET_KEY_FILE", "/var/lib/horizon/.secret_key_store")
)
STATIC_ROOT = "/var/lib/horizon/static"
# In the process and in the browser, until a deployment names its memcached.
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
