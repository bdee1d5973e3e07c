# What LOCI's `requirements` stage makes, as far as the `project` stage of keystone needs it.
FROM standin AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev python3-dev
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels uwsgi
FROM scratch
COPY --from=build /wheels/*.whl /
COPY upper-constraints.txt /
COPY <<END /global-requirements.txt
# nothing: every version is pinned in upper-constraints.txt
END
