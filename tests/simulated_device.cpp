// A device of torch with real values: its tensors are in the memory of the host, but only its own functions read them.
// It runs every function of torch on a CPU, refuses to mix devices, and counts copies between the host and a device, and
// the functions for which a host must wait.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/copy.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

extern "C" std::atomic<long> copies{0}, waits{0};

namespace {

using at::Tensor;
using c10::Storage;
using Backend = c10::BackendComponent;
constexpr auto kDevice = c10::DeviceType::PrivateUse1;

// Two devices, of which the first is always the current one; all work is done at once, so nothing waits for a stream.
struct Guard final : c10::impl::NoOpDeviceGuardImpl<kDevice> {
  c10::Device getDevice() const override { return {kDevice, 0}; }
  c10::DeviceIndex deviceCount() const noexcept override { return 2; }
  c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Hooks final : at::PrivateUse1HooksInterface {
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  // Fake tensors of CUDA need this even without a GPU; torch has it unless it was built for CPUs alone.
  if (!c10::impl::hasDeviceGuardImpl(c10::kCUDA))
    c10::impl::registerDeviceGuard(c10::kCUDA, new c10::impl::NoOpDeviceGuardImpl<c10::kCUDA>);
  return true;
}();

// Return a tensor of a backend in a storage with the shape, dtype and marks of another, such as a lazy negation.
Tensor view(const Storage& storage, Backend backend, const Tensor& like) {
  auto marks = like.key_set().remove_backend(Backend::CPUBit).remove_backend(Backend::PrivateUse1Bit);
  auto keys = marks | c10::DispatchKeySet(backend);
  auto made = at::detail::make_tensor<c10::TensorImpl>(Storage(storage), keys, like.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return made;
}

// Return a storage of the host in the memory of one of the device.
Storage host_storage(const Storage& ours) {
  auto forget = [](void* kept) { delete static_cast<Storage*>(kept); };
  c10::DataPtr memory(ours.mutable_data(), new Storage(ours), forget, c10::kCPU);
  return Storage(Storage::use_byte_size_t(), ours.nbytes(), std::move(memory), c10::GetAllocator(c10::kCPU), true);
}

// One call of a function: its tensors on the device, and the same memory as tensors of the host.
struct Call {
  bool is_copy = false;
  std::optional<c10::Device> device;
  std::vector<std::pair<Tensor, Tensor>> tensors;
  std::vector<std::pair<Storage, Storage>> storages;

  c10::Device enter(c10::Device wanted) {
    if (wanted.type() != kDevice) return wanted;
    if (!wanted.has_index()) wanted = Guard().getDevice();
    TORCH_CHECK(is_copy || device.value_or(wanted) == wanted, "tensors of two devices, ", wanted, " and ", *device);
    device = wanted;
    return c10::kCPU;
  }

  Tensor enter(const Tensor& x) {
    if (!x.defined()) return x;
    TORCH_CHECK(is_copy || x.dim() == 0 || !x.is_cpu(), "a tensor of the CPU among those of a device");
    if (enter(x.device()) == x.device()) return x;
    for (auto& [ours, host] : tensors)
      if (ours.is_same(x)) return host;
    auto same = [&x](auto& pair) { return pair.first.is_alias_of(x.storage()); };
    auto found = std::find_if(storages.begin(), storages.end(), same);
    if (found == storages.end()) found = storages.emplace(found, x.storage(), host_storage(x.storage()));
    tensors.emplace_back(x, view(found->second, Backend::CPUBit, x));
    return tensors.back().second;
  }

  Tensor leave(const Tensor& x) {
    if (!x.defined()) return x;
    for (auto& [ours, host] : tensors)
      if (host.is_same(x)) return ours;
    for (auto& [ours, host] : storages)
      if (host.is_alias_of(x.storage())) return view(ours, Backend::PrivateUse1Bit, x);
    x.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().unsafe_set_device(*device);
    return view(x.storage(), Backend::PrivateUse1Bit, x);
  }

  // Give memory and shapes that the function changed, as those of an `out`, to the tensors of the device.
  void update() {
    for (auto& [ours, host] : storages)
      if (host.data() != ours.data()) {
        auto moved = host.set_data_ptr(c10::DataPtr());
        moved.unsafe_set_device(ours.device());
        ours.set_data_ptr(std::move(moved));
        ours.set_nbytes(host.nbytes());
      }
    for (auto& [ours, host] : tensors)
      if (ours.sizes() != host.sizes() || ours.strides() != host.strides())
        ours.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
  }
};

// Replace the tensors of the last values of a stack, also those in lists, and the devices.
template <class F>
void replace(torch::jit::Stack& stack, size_t count, F of_tensor, Call* call = nullptr) {
  for (auto value = stack.end() - count; value != stack.end(); ++value) {
    if (value->isTensor()) *value = of_tensor(value->toTensor());
    if (call && value->isDevice()) *value = call->enter(value->toDevice());
    if (!value->isTensorList() && !value->isOptionalTensorList()) continue;
    c10::impl::GenericList replaced(value->toList().elementType());
    for (const c10::IValue& x : value->toList().vec())
      replaced.push_back(x.isTensor() ? of_tensor(x.toTensor()) : x);
    *value = replaced;
  }
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::AutoDispatchBelowADInplaceOrView guard;
  waits += op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape);
  Call call;
  replace(*stack, op.schema().arguments().size(), [&](const Tensor& x) { return call.enter(x); }, &call);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  call.update();
  replace(*stack, op.schema().returns().size(), [&](const Tensor& x) { return call.leave(x); });
}

Tensor copy(const Tensor& from, const Tensor& to, bool) {
  at::AutoDispatchBelowADInplaceOrView guard;
  copies += from.is_cpu() || to.is_cpu();
  Call call{true};
  call.enter(to).copy_(call.enter(from));
  return to;
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>()); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_copy_from", &copy); }
// Otherwise a lazy negation or conjugate would be computed before it is copied, by a copy.
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
