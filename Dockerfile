# zol on a CPU, with simulators, films and ONNX:
#
#     docker build -t zol .
#     docker run --rm -v "$PWD/runs:/home/zol/here/runs" zol demo
#     docker run --rm -it -v "$PWD:/home/zol/here" zol adapt walker --task stand --episodes 10 --video runs/films
#
# torch's ordinary wheels bring CUDA along. Smaller, CPU-only ones need the index that PyTorch's installation page
# names: docker build --build-arg PIP_OPTIONS="--extra-index-url …" -t zol .
FROM python:3.11-slim

# Drawing without a display; everything else comes as wheels.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libegl1 libosmesa6 \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/zol
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
ARG PIP_OPTIONS=""
RUN pip install --no-cache-dir -c constraints.txt ${PIP_OPTIONS} \
    '.[dmc,export,video,hdf5,minari,hub,tensorboard]'

RUN useradd --create-home zol && mkdir /home/zol/here && chown zol /home/zol/here
USER zol
WORKDIR /home/zol/here
ENTRYPOINT ["zol"]
CMD ["--help"]
