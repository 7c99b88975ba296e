# streamgp with its service: docker build -t streamgp . && docker run --rm streamgp --help
FROM python:3.11-slim AS build
WORKDIR /src
COPY . .
RUN python -m venv /opt/streamgp \
 && /opt/streamgp/bin/pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu \
    "$(grep -E '^torch==' constraints.txt)" \
 && /opt/streamgp/bin/pip install --no-cache-dir '.[brokers,serve]' -c constraints.txt

FROM python:3.11-slim
RUN useradd --create-home --uid 1000 streamgp && install -d -o streamgp /data
COPY --from=build /opt/streamgp /opt/streamgp
ENV PATH=/opt/streamgp/bin:$PATH OMP_NUM_THREADS=1 MLFLOW_DISABLE_TELEMETRY=true
USER 1000
WORKDIR /data
EXPOSE 8000
ENTRYPOINT ["streamgp"]
CMD ["--help"]
