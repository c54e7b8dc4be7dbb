/* depthwise_strips.cuh - depthwise convolutions at stride 1 of 7 x 7, which ConvNeXt has, and of 3 x 3, which
 * NAFNet has. Arithmetic is the bound of the former, 49 products for each value read and written, and reads
 * that wait for memory were that of the latter. So a thread has two channels, whose weights (or sums, of the
 * weight gradient) of all taps stay in registers, and walks down a strip of columns, two rows at a time:
 * each pixel that it reads serves every output of these rows that it contributes to. The rows that are read
 * lie in shared memory, zeros beside the image with them, at distances that the compiler knows: a pixel costs
 * a load and its conversion, and no arithmetic of addresses.
 *
 * A block's threads are `lanes` pairs of channels for each of `tasks` neighbouring strips. Its rows are a
 * ring in shared memory: the next two are on their way while these are computed. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_DEPTHWISE_STRIPS_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_DEPTHWISE_STRIPS_CUH

#include "trainer/backend/cuda/kernels/async_copy.cuh"
#include "trainer/backend/cuda/kernels/depthwise_layout.cuh"

namespace fshard
{
namespace depthwise
{

constexpr int strips_rows = 2;

/* What the compiler knows of a kernel: K x K taps, at most `Lanes` pairs of channels in a block. */
template <int K, int Lanes> struct StripForm {
    static constexpr int kernel = K, taps = K * K, lanes = Lanes;
    static constexpr int read = K + strips_rows - 1, ring = read + strips_rows; /* rows */
    static constexpr int pixel = 2 * Lanes; /* distance of pixels in shared memory, in elements */
    /* Threads of a block, and blocks of a multiprocessor: up to 168 registers a thread for 7 x 7, else 80. */
    static constexpr int threads = K == 7 ? 384 : 256, blocks = K == 7 ? 1 : 3;
    /* Bytes of shared memory that a block may have, so that `blocks` of them fit into an H100's. A card that
     * allows less divides images otherwise, and has other sums. */
    static constexpr int shared_most = K == 7 ? 232448 : 76800;
};

/* Rows of pixels that a block copies, which lie one after the other in shared memory: a thread copies 16
 * bytes of every so many pixels. */
struct StripRows {
    int columns;
    int pixels, rows_on, columns_on; /* from one of a thread's pixels to the next */
};

/* How an image is divided. */
struct Strips {
    int64_t steps; /* samples * groups * steps_of_group: of strips_rows rows in `tasks` strips */
    int in_height, in_width, out_height, out_width, padding, pitch; /* out: the image written, or dy */
    int channels, lanes, tasks, groups, steps_of_group;
    StripRows read, gradients; /* of a group: of the image that is read, and of dy */
    int bytes;                 /* of shared memory of a block */
    bool flipped;              /* weights are taken in reverse order */
};

/* Returns whether the convolution is one that these kernels have: rows of channels in accesses of 16
 * bytes. */
inline bool is_for_strips(const Depthwise *depthwise, const DeviceTensor *x)
{
    const int whole = x->element == ELEMENT_F32 ? vector_width<float> : vector_width<__half>;
    return (depthwise->kernel == 3 || depthwise->kernel == 7) && depthwise->stride == 1 &&
           x->pitch % whole == 0;
}

/* True where every stride of 1 goes by strips: with these elements of one access. */
template <int Width, int K> constexpr bool always_strips = Width > 1 && (K == 3 || K == 7);

/* Calls launch with the form for this kernel and tensor. */
template <typename Launch> void with_form(const Depthwise *depthwise, const DeviceTensor *x, Launch launch)
{
    if (depthwise->kernel == 7)
        launch(StripForm<7, 64>{});
    else if (x->pitch <= StripForm<3, 32>::pixel)
        launch(StripForm<3, 32>{});
    else
        launch(StripForm<3, 64>{});
}

/* Returns the width of a strip that costs least for this width of an image: 4, 5 or 7 columns. What a column
 * of outputs costs beside what each column that is read does, in instructions. */
inline int strip_width(int kernel, int64_t out_width)
{
    constexpr int widths[] = {4, 5, 7}, of_input = 3;
    const int of_output = strips_rows * kernel * 2;
    int best = 0;
    int64_t least = 0;
    for (const int width : widths) {
        const int64_t cost =
            (out_width + width - 1) / width * (width * of_output + (width + kernel - 1) * of_input);
        if (!best || cost < least) {
            best = width;
            least = cost;
        }
    }
    return best;
}

/* Returns the bytes of shared memory of a block. gradients: with two steps' rows of dy; else with the
 * weights, at first, behind the rows of the first step. */
template <typename Form> int strips_shared_bytes(const Strips &strips, int element_bytes, bool gradients)
{
    const int pixel = Form::pixel * element_bytes, row = strips.read.columns * pixel, ring = Form::ring * row;
    if (gradients)
        return ring + 2 * strips_rows * strips.gradients.columns * pixel;
    const int with_weights = Form::read * row + Form::pixel * Form::taps * (int)sizeof(float);
    return ring > with_weights ? ring : with_weights;
}

/* Returns how the images are divided. in: the images that are read, of which the sizes count; out: those that
 * are written, or dy. */
template <typename Form>
Strips strips_of(const DeviceTensor *in, const DeviceTensor *out, int64_t padding, int width, bool gradients)
{
    const bool narrow = element_is_narrow(in->element);
    Strips strips = {};
    strips.in_height = (int)in->shape[1];
    strips.in_width = (int)in->shape[2];
    strips.out_height = (int)out->shape[1];
    strips.out_width = (int)out->shape[2];
    strips.padding = (int)padding;
    strips.pitch = (int)in->pitch;
    strips.channels = (int)in->shape[3];
    const int pairs = strips.pitch / 2, slabs = (pairs + Form::lanes - 1) / Form::lanes;
    strips.lanes = ((pairs + slabs - 1) / slabs + 3) / 4 * 4;
    const int count = (strips.out_width + width - 1) / width;
    const int of_card = shared_bytes_most(), most = of_card < Form::shared_most ? of_card : Form::shared_most;
    int tasks = Form::threads / strips.lanes;
    do { /* strips of nearly equal groups */
        strips.groups = (count + tasks - 1) / tasks;
        strips.tasks = (count + strips.groups - 1) / strips.groups;
        strips.gradients.columns = strips.tasks * width;
        strips.read.columns = strips.gradients.columns + Form::kernel - 1;
        strips.bytes = strips_shared_bytes<Form>(strips, narrow ? 2 : 4, gradients);
        tasks = strips.tasks - 1;
    } while (tasks > 0 && strips.bytes > most);
    const int vector = narrow ? vector_width<__half> : vector_width<float>;
    const int pixels = strips.tasks * vector / 2; /* a thread copies a vector, and has two channels */
    for (StripRows *rows : {&strips.read, &strips.gradients}) {
        rows->pixels = pixels;
        rows->rows_on = pixels / rows->columns;
        rows->columns_on = pixels % rows->columns;
    }
    strips.steps_of_group = (strips.out_height + strips_rows - 1) / strips_rows;
    strips.steps = in->shape[0] * strips.groups * strips.steps_of_group;
    return strips;
}

/* Returns the blocks: as many as the card has room for at a time, so that each loads its weights once and
 * joins its sums once. */
template <typename Form> dim3 strips_grid(const Strips &strips)
{
    constexpr int of_each = 1024, blocks_most = 32; /* what a block takes of shared memory beside its own */
    const int by_threads = Form::blocks * Form::threads / (strips.lanes * strips.tasks),
              by_bytes = Form::blocks * (Form::shared_most + of_each) / (strips.bytes + of_each);
    int blocks = by_threads < by_bytes ? by_threads : by_bytes;
    blocks = blocks < blocks_most ? blocks : blocks_most;
    const int64_t slabs = (strips.pitch / 2 + strips.lanes - 1) / strips.lanes,
                  resident = multiprocessors * (blocks > 0 ? blocks : 1);
    const int64_t wanted = resident / slabs > 0 ? resident / slabs : 1;
    return dim3((unsigned)(strips.steps < wanted ? strips.steps : wanted), (unsigned)slabs);
}

/* Calls launch with the width of a strip as a constant. */
template <typename Launch> void with_strip(int kernel, int64_t out_width, Launch launch)
{
    switch (strip_width(kernel, out_width)) {
    case 4:
        return launch(std::integral_constant<int, 4>{});
    case 5:
        return launch(std::integral_constant<int, 5>{});
    default:
        return launch(std::integral_constant<int, 7>{});
    }
}

/* Enqueues a kernel of these; what fails is the last error. */
template <typename Form, typename... Arguments>
void launch_strips(void (*kernel)(Arguments...), const Strips &strips, cudaStream_t stream,
                   Arguments... arguments)
{
    if (cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, strips.bytes) == cudaSuccess)
        kernel<<<strips_grid<Form>(strips), (unsigned)(strips.lanes * strips.tasks), (unsigned)strips.bytes,
                 stream>>>(arguments...);
}

/* A thread's place in its block. */
struct StripThread {
    int lane, task, c; /* c: its channels are c and c + 1 */
    __device__ explicit StripThread(const Strips &strips)
        : lane((int)threadIdx.x % strips.lanes), task((int)threadIdx.x / strips.lanes),
          c(2 * ((int)blockIdx.y * strips.lanes + lane))
    {
    }
};

/* A thread's first pixel of the rows that its block copies, and the channel of it. */
template <typename Form, typename T> struct StripCopies {
    int row, column, from_c;
    unsigned bytes; /* to there, in shared memory */
    __device__ StripCopies(const Strips &strips, const StripRows &rows)
    {
        constexpr int vector = vector_width<T>;
        const int vectors = 2 * strips.lanes / vector, pixel = (int)threadIdx.x / vectors,
                  c = ((int)threadIdx.x - pixel * vectors) * vector;
        row = pixel / rows.columns;
        column = pixel - row * rows.columns;
        from_c = 2 * (int)blockIdx.y * strips.lanes + c;
        bytes = (unsigned)(pixel * Form::pixel + c) * (unsigned)sizeof(T);
    }
    /* Begins to copy `count` rows from first_row and first_column on of a sample of this size to shared
     * memory; zeros beside it. */
    __device__ void begin(T *to, const T *sample, int first_row, int first_column, int count, int height,
                          int width, int pitch, const StripRows &rows) const
    {
        unsigned at = shared_address(to) + bytes;
        const T *of_channel = sample + from_c;
        const bool copies = from_c < pitch;
#pragma unroll 1
        for (int r = row, i = column; r < count; at += (unsigned)(rows.pixels * Form::pixel) * sizeof(T)) {
            const int of_row = first_row + r, of_column = first_column + i;
            const bool inside =
                copies && (unsigned)of_row < (unsigned)height && (unsigned)of_column < (unsigned)width;
            copy_16_or_zeros(at, inside ? of_channel + (int64_t)(of_row * width + of_column) * pitch : sample,
                             inside);
            r += rows.rows_on;
            i += rows.columns_on;
            if (i >= rows.columns) {
                i -= rows.columns;
                r++;
            }
        }
    }
};

/* A block's steps of one group of strips: from `row` down, two rows at a time. */
struct StripRun {
    int64_t sample, end; /* end: the step after the last */
    int row, column;     /* of the image written, or of dy; the group's first column */
    __device__ StripRun(int64_t step, int64_t last, int width, const Strips &strips)
    {
        const int64_t group = step / strips.steps_of_group;
        sample = group / strips.groups;
        row = (int)(step - group * strips.steps_of_group) * strips_rows;
        column = (int)(group - sample * strips.groups) * strips.tasks * width;
        end = min((group + 1) * strips.steps_of_group, last);
    }
};

/* Returns the slot of the ring that is so far on, less than once around. */
template <typename Form> __device__ int ring_slot(int slot)
{
    return slot >= Form::ring ? slot - Form::ring : slot;
}

/* Begins to copy rows of the ring: row `row` of the image goes to `slot`, and so on; the ring does not end
 * between them. Returns the slot after them. */
template <typename Form, typename T>
__device__ int copy_rows(T *ring, int slot, const T *x, const StripRun &run, int row, int count,
                         const Strips &strips, const StripCopies<Form, T> &copies)
{
    copies.begin(ring + slot * strips.read.columns * Form::pixel,
                 x + run.sample * strips.in_height * strips.in_width * strips.pitch, row,
                 run.column - strips.padding, count, strips.in_height, strips.in_width, strips.pitch,
                 strips.read);
    return ring_slot<Form>(slot + count);
}

/* Calls use(q, tap, r, pixel) for each product of a thread's pixels with one of two rows of outputs: row q,
 * column r. first: the slot of the first row of the ring that is read, which is row in_row of the image. */
template <typename Form, typename T, int R, typename Use>
__device__ __forceinline__ void for_products(const T *ring, int first, int in_row, const Strips &strips,
                                             const StripThread &thread, Use use)
{
    constexpr int K = Form::kernel;
#pragma unroll
    for (int k = 0; k < Form::read; k++) {
        if (in_row + k < 0 || in_row + k >= strips.in_height)
            continue;
        const int slot = ring_slot<Form>(first + k);
        const T *from = ring + (slot * strips.read.columns + thread.task * R) * Form::pixel + 2 * thread.lane;
#pragma unroll
        for (int i = 0; i < R + K - 1; i++) {
            float pixel[2];
            unpack(fetch<T, 2>(from + i * Form::pixel), pixel);
#pragma unroll
            for (int q = 0; q < strips_rows; q++)
#pragma unroll
                for (int j = 0; j < K; j++)
                    if (k - q >= 0 && k - q < K && i - j >= 0 && i - j < R)
                        use(q, (k - q) * K + j, i - j, pixel);
        }
    }
}

/* Loads a thread's weights of all taps, through `shared`, where the block's will lie; the block meets. */
template <typename Form>
__device__ void load_block_weights(const float *weight, float *shared, const Strips &strips,
                                   const StripThread &thread, float (&weights)[Form::taps][2])
{
    const int first = 2 * (int)blockIdx.y * strips.lanes;
    const int there = (strips.channels - first) * Form::taps;
    for (int i = (int)threadIdx.x; i < 2 * strips.lanes * Form::taps; i += (int)blockDim.x)
        shared[i] = i < there ? weight[first * Form::taps + i] : 0;
    __syncthreads();
    const int on = strips.flipped ? -1 : 1;
    const float *from = shared + 2 * thread.lane * Form::taps + (strips.flipped ? Form::taps - 1 : 0);
#pragma unroll
    for (int tap = 0; tap < Form::taps; tap++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            weights[tap][h] = from[h * Form::taps + tap * on];
}

/* Writes a thread's outputs of two rows, as far as they are inside. */
template <int R, typename T>
__device__ void put_outputs(const float (&sums)[strips_rows][R][2], T *y, const StripRun &run,
                            const Strips &strips, const StripThread &thread)
{
    const int column = run.column + thread.task * R;
    const int rows = strips.out_height - run.row, columns = strips.out_width - column;
    if (thread.c >= strips.pitch || columns <= 0)
        return;
    T *to =
        y +
        (run.sample * strips.out_height * strips.out_width + (int64_t)run.row * strips.out_width + column) *
            strips.pitch +
        thread.c;
    const bool whole = rows >= strips_rows && columns >= R;
#pragma unroll
    for (int q = 0; q < strips_rows; q++) {
        T *at = to;
#pragma unroll
        for (int r = 0; r < R; r++) {
            if (whole || (q < rows && r < columns))
                put(at, pack<T, 2>(sums[q][r]));
            at += strips.pitch;
        }
        to += (int64_t)strips.out_width * strips.pitch;
    }
}

/* Computes y = x * weight + bias; bias may be NULL. With flipped weights it is the data gradient. */
template <typename Form, typename T, int R>
__global__ void __launch_bounds__(Form::threads, Form::blocks)
    strips_forward_kernel(const T *x, const float *weight, const float *bias, T *y,
                          const __grid_constant__ Strips strips)
{
    extern __shared__ __align__(16) unsigned char shared[];
    T *ring = reinterpret_cast<T *>(shared);
    const StripThread thread(strips);
    const StripCopies<Form, T> copies(strips, strips.read);
    const int64_t last = strips.steps * (blockIdx.x + 1) / gridDim.x;
    int64_t step = strips.steps * blockIdx.x / gridDim.x;
    StripRun run(step, last, R, strips);
    int next = copy_rows<Form>(ring, 0, x, run, run.row - strips.padding, Form::read, strips, copies),
        slot = 0;
    float weights[Form::taps][2], biases[2] = {};
    load_block_weights<Form>(weight,
                             reinterpret_cast<float *>(ring + Form::read * strips.read.columns * Form::pixel),
                             strips, thread, weights);
    if (bias && thread.c < strips.pitch)
        load(bias + thread.c, biases);
    while (true) {
        for (; step < run.end; step++, run.row += strips_rows) {
            copies_close();
            copies_wait<0>();
            __syncthreads();
            if (step + 1 < run.end)
                next = copy_rows<Form>(ring, next, x, run, run.row - strips.padding + Form::read, strips_rows,
                                       strips, copies);
            float sums[strips_rows][R][2];
#pragma unroll
            for (int q = 0; q < strips_rows; q++)
#pragma unroll
                for (int r = 0; r < R; r++)
#pragma unroll
                    for (int h = 0; h < 2; h++)
                        sums[q][r][h] = biases[h];
            for_products<Form, T, R>(ring, slot, run.row - strips.padding, strips, thread,
                                     [&](int q, int tap, int r, const float(&pixel)[2]) {
                                         sums[q][r][0] = fmaf(pixel[0], weights[tap][0], sums[q][r][0]);
                                         sums[q][r][1] = fmaf(pixel[1], weights[tap][1], sums[q][r][1]);
                                     });
            slot = ring_slot<Form>(slot + strips_rows);
            put_outputs<R>(sums, y, run, strips, thread);
        }
        if (step >= last)
            return;
        run = StripRun(step, last, R, strips);
        __syncthreads(); /* nobody reads what was there */
        slot = 0;
        next = copy_rows<Form>(ring, 0, x, run, run.row - strips.padding, Form::read, strips, copies);
    }
}

/* Begins to copy two rows of dy. */
template <typename Form, typename T>
__device__ void copy_gradients(T *to, const T *dy, const StripRun &run, int row, const Strips &strips,
                               const StripCopies<Form, T> &copies)
{
    copies.begin(to, dy + run.sample * strips.out_height * strips.out_width * strips.pitch, row, run.column,
                 strips_rows, strips.out_height, strips.out_width, strips.pitch, strips.gradients);
}

/* Computes the sums of dy * x over each block's steps, and after the taps those of dy alone:
 * partial[block][taps + 1][pitch]. */
template <typename Form, typename T, int R>
__global__ void __launch_bounds__(Form::threads, Form::blocks)
    strips_weight_kernel(const T *dy, const T *x, float *partial, const __grid_constant__ Strips strips)
{
    extern __shared__ __align__(16) unsigned char shared[];
    T *ring = reinterpret_cast<T *>(shared);
    const int columns = strips.gradients.columns;
    const StripThread thread(strips);
    const StripCopies<Form, T> copies(strips, strips.read), of_dy(strips, strips.gradients);
    T *of_y = ring + Form::ring * strips.read.columns * Form::pixel;
    float sums[Form::taps + 1][2];
#pragma unroll
    for (int tap = 0; tap <= Form::taps; tap++)
        clear(sums[tap]);
    const int64_t last = strips.steps * (blockIdx.x + 1) / gridDim.x;
    int64_t step = strips.steps * blockIdx.x / gridDim.x;
    while (step < last) {
        StripRun run(step, last, R, strips);
        __syncthreads(); /* nobody reads what was there */
        int next = copy_rows<Form>(ring, 0, x, run, run.row - strips.padding, Form::read, strips, copies),
            slot = 0;
        int half = 0;
        copy_gradients<Form>(of_y, dy, run, run.row, strips, of_dy);
        for (; step < run.end; step++, run.row += strips_rows) {
            copies_close();
            copies_wait<0>();
            __syncthreads();
            if (step + 1 < run.end) {
                next = copy_rows<Form>(ring, next, x, run, run.row - strips.padding + Form::read, strips_rows,
                                       strips, copies);
                copy_gradients<Form>(of_y + (half ^ 1) * strips_rows * columns * Form::pixel, dy, run,
                                     run.row + strips_rows, strips, of_dy);
            }
            float gradients[strips_rows][R][2];
            const T *from =
                of_y + (half * strips_rows * columns + thread.task * R) * Form::pixel + 2 * thread.lane;
#pragma unroll
            for (int q = 0; q < strips_rows; q++)
#pragma unroll
                for (int r = 0; r < R; r++) {
                    unpack(fetch<T, 2>(from + (q * columns + r) * Form::pixel), gradients[q][r]);
#pragma unroll
                    for (int h = 0; h < 2; h++)
                        sums[Form::taps][h] += gradients[q][r][h];
                }
            for_products<Form, T, R>(ring, slot, run.row - strips.padding, strips, thread,
                                     [&](int q, int tap, int r, const float(&pixel)[2]) {
                                         sums[tap][0] = fmaf(pixel[0], gradients[q][r][0], sums[tap][0]);
                                         sums[tap][1] = fmaf(pixel[1], gradients[q][r][1], sums[tap][1]);
                                     });
            slot = ring_slot<Form>(slot + strips_rows);
            half ^= 1;
        }
    }
    float2 *joined = reinterpret_cast<float2 *>(shared);
    const int threads = strips.lanes * strips.tasks;
#pragma unroll
    for (int tap = 0; tap <= Form::taps; tap++) {
        __syncthreads();
        joined[threadIdx.x] = make_float2(sums[tap][0], sums[tap][1]);
        __syncthreads();
        if (thread.task > 0 || thread.c >= strips.pitch)
            continue;
        float total[2] = {};
        for (int t = thread.lane; t < threads; t += strips.lanes) {
            total[0] += joined[t].x;
            total[1] += joined[t].y;
        }
        store(partial + ((int64_t)blockIdx.x * (Form::taps + 1) + tap) * strips.pitch + thread.c, total);
    }
}

} // namespace depthwise
} // namespace fshard

#endif
