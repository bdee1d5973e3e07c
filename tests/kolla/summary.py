"""What Kolla's own summary makes of images that ended as standard input says: an object of `images` (name and status) and of
the options that it looks at.
"""

import json
import sys
import types

from kolla.image import kolla_worker
from kolla.image.utils import Status

job = json.load(sys.stdin)
conf = types.SimpleNamespace(**job["options"])
images = [types.SimpleNamespace(name=name, status=Status[status]) for name, status in job["images"]]
worker = types.SimpleNamespace(conf=conf, images=images)
for kind in ["bad", "good", "unmatched", "skipped", "unbuildable", "allowed_to_fail"]:
    setattr(worker, f"image_statuses_{kind}", {})
worker.get_image_statuses = lambda: kolla_worker.KollaWorker.get_image_statuses(worker)
kolla_worker.KollaWorker.summary(worker)
# As its program does.
sys.exit(1 if worker.image_statuses_bad else 0)
