"""What Kolla makes of options. The first line of output is every option that it registers; then, for each line of input (an
object with `arguments` and `environment`), an object with the exit code and, where that is 0, every option's value as
`$name` in another option puts it in.
"""

import contextlib
import io
import json
import os
import sys

from oslo_config import cfg

from kolla.common import config


def parsed(arguments):
    conf = cfg.ConfigOpts()
    config.parse(conf, arguments, prog="kolla-build", default_config_files=[])
    return conf


def plain(value):
    return list(value) if isinstance(value, (list, tuple)) else value


def about(group, option, conf):
    kind = option.type
    positional = getattr(option, "positional", False)
    value = conf[option.dest] if group == "DEFAULT" else conf[group][option.dest]
    return {
        "group": group,
        "name": option.name,
        "key": option.dest,
        "kind": "Multi" if option.multi else type(kind).__name__,
        "short": option.short,
        "choices": list(getattr(kind, "choices", None) or []),
        "least": getattr(kind, "min", None),
        "positional": bool(positional),
        "value": plain(value),
    }


def declared():
    conf = parsed([])
    every = [("DEFAULT", conf._opts)] + [(name, group._opts) for name, group in conf._groups.items()]
    for group, options in every:
        for info in options.values():
            yield {**about(group, info["opt"], conf), "cli": info["cli"]}


def told(job):
    os.environ.clear()
    os.environ.update(job["environment"])
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            conf = parsed(job["arguments"])
            # Options of no command line are looked at when somebody asks for them.
            for name in conf:
                conf[name]
            # As a worker finds out about users.
            values = {}
            own = set(conf.list_all_sections()) - set(conf._groups)
            for section in (section for section in own if section.endswith("-user")):
                conf.register_opts(config.get_user_opts(None, None, group=section[:-5]), section)
                values[section[:-5]] = conf[section].group
    except SystemExit as error:
        return {"code": error.code, "said": said.getvalue()}
    except Exception as error:
        return {"code": 1, "said": f"{type(error).__name__}: {error}"}
    return {"code": 0, "values": values}


print(json.dumps(list(declared())), flush=True)
for line in sys.stdin:
    print(json.dumps(told(json.loads(line))), flush=True)
