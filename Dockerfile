# zol on a CPU, with simulators, films and ONNX:
#
#     docker build -t zol .
#     docker run --rm -v "$PWD/runs:/work/runs" zol demo
#     docker run --rm -it -v "$PWD:/work" zol adapt walker --task stand --episodes 10 --video runs/films
#
# For a GPU, start from an image with CUDA and leave out the index of CPU wheels below.
FROM python:3.11-slim

# Drawing without a display; everything else comes as wheels.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libegl1 libosmesa6 \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/zol
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir -c constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu \
    '.[dmc,export,video,hdf5,minari,hub,tensorboard]'

RUN useradd --create-home zol && mkdir /work && chown zol /work
USER zol
WORKDIR /work
ENTRYPOINT ["zol"]
CMD ["--help"]
